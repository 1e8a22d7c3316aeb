"""`python -m mvpi`: the same as `mvpi`."""

from mvpi.cli import main

if __name__ == "__main__":
    main()
