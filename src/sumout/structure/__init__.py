"""Program → factor graph: factors, their scopes, roles and neighbours."""
