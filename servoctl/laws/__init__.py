"""Laws: from the equations of motion and a task to a command."""
