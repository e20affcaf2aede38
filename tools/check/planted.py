"""What the checks' self-tests have in common: each planted fault is found, and a tree without one is not refused."""
import pathlib
import tempfile


def all_are_found(name, planted, plant, check):
    """`plant(root, fault)` makes a tree with that fault, or with none for None; `check(root)` answers what is wrong there.
    Returns how many cases failed."""
    failures = 0
    for what, fault in {**planted, None: None}.items():
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            plant(root, fault)
            errors = check(root)
        if bool(errors) != (what is not None):
            failures += 1
            print(f"not found: {what}" if what else f"a clean tree is refused: {errors}")
    print(f"{name} self-test: {1 + len(planted) - failures} passed, {failures} failed")
    return failures
