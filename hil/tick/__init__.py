"""The tick of a run in C: frames in, frames out."""
