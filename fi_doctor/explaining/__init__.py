"""From logs to causes: lines are found, what they tell is read, faults are matched and ranked. Nothing is measured."""
