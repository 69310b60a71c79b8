"""Which rule of an initializer serves a name; asked of MXNet, which recorded it, and of this package."""


def rule_of(mx, desc):
    """Return the name of the method that an initializer calls for a parameter, None if it refuses."""
    kind, called = mx.init.Initializer, []
    rules = [name for name in dir(kind) if name.startswith("_init_") and name != "_init_default"]
    mark = {rule: lambda self, name, arr, rule=rule: called.append(rule) for rule in rules}
    try:
        type("Mark", (kind,), mark)()(desc, mx.nd.zeros((2, 2)))
    except ValueError:
        return None
    return called[0]
