"""What every refusal is."""


def one_clear_sentence(error, most_lines=1):
    assert error.startswith("tensor-fusion: "), error
    assert 1 <= len(error.strip().splitlines()) <= most_lines, error
