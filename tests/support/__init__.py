"""What tests share: samples, builders, servers, and checks of output."""
