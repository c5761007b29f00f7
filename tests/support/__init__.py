"""What several tests need. Test modules import from here, never from each other."""
