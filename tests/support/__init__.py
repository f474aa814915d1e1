"""What several test levels share: servers, stand-ins for either end of a link, waiting."""
