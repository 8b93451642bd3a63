"""A cluster without Ray: what each node gives is written down, and nobody is waited for."""

from fi_doctor.cluster.grid import Ended, Node, Ticket

REPORT = b'{"schema": "fi-doctor.report/1"}'


def node(name, *, gpus=1.0, why="", alive=True):
    return Node(id=f"id-{name}", name=name, address="10.0.0.1", gpus=gpus, is_alive=alive, why=why)


def ended(stdout=REPORT, **changed):
    fields = {"code": 0, "signal": None, "timed_out": False, "stderr": b"", "seconds": 2.0, "error": ""}
    return Ended(stdout=stdout, **{**fields, **changed})


class FakeGrid:
    """results: by the name of a node; one that is not named answers. A node in `never` does not end."""

    def __init__(self, *nodes, results=None, never=(), joins=(), has_begun=True):
        self.all, self.results, self.never = list(nodes), results or {}, set(never)
        self.joins, self.has_begun = list(joins), has_begun
        self.orders, self.open, self.cancelled = [], {}, []

    def nodes(self):
        return tuple(self.all)

    def start(self, node, order):
        ticket = Ticket(len(self.orders), node, order)
        self.orders.append(order)
        self.open[ticket.number] = ticket
        return ticket

    def wait(self, timeout_s):
        self.all += [self.joins.pop()] if self.joins else []
        for number, ticket in self.open.items():
            if ticket.node.name not in self.never and (self.has_begun or not ticket.order.gpus):
                del self.open[number]
                return [(ticket, self.results.get(ticket.node.name, ended()))]
        return []

    def begun(self):
        return frozenset(self.open if self.has_begun else ())

    def cancel(self, ticket):
        self.open.pop(ticket.number, None)
        self.cancelled.append(ticket.node.name)

    def free_gpus(self):
        return {one.id: 0.0 for one in self.all}
