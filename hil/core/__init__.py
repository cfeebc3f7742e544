"""The computation of a tick in C, and the library that it is compiled to; rooms above own its structs."""
