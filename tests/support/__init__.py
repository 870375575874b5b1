"""What tests share: samples, builders, servers, and checks of what is shown."""
