"""Many machines as one: reports are merged, nodes are grouped by equal facts, and the odd ones are explained."""
