"""How functions are compiled: ahead of time, in one piece, quickly or well."""
