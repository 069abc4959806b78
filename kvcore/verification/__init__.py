"""Checks somebody else's cached decoding against their own full forward, and says what is probably wrong."""
