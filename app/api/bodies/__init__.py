"""Request and response bodies by resource. Bodies out have no defaults: every field is
there."""
