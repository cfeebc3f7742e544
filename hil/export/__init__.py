"""The loop on drives as one C program, for a target without Python: cyclic tick, bring-up and stop."""
