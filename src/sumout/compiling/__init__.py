"""How functions are compiled: ahead, in one piece, quickly or well."""
