"""Settings of all tests."""

from hypothesis import settings

# Tests share machines with other work: no test is judged by how long it takes.
settings.register_profile("diaulos", deadline=None)
settings.load_profile("diaulos")
