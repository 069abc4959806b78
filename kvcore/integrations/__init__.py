"""Bridges to other libraries, each imported only where it is asked for."""
