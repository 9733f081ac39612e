"""What rrnn does, end to end, in under three minutes. Run by `make demo`."""


def main() -> None:
    print("The demonstration comes with the automata.")


if __name__ == "__main__":
    main()
