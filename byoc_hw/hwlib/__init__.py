"""HWlib in C, its simulator in C, and what generates the simulator's configuration."""
