"""A login with logged errors and an exit code."""
import argparse
import getpass
import logging

logging.basicConfig(format="[%(levelname)s] %(message)s", level=logging.DEBUG)


def login(args):
    user = args.user or input("user: ")  # here
    return user, getpass.getpass()


def lines():
    yield input("first: ")


def cli():
    parser = argparse.ArgumentParser()
    parser.add_argument("--user")
    args = parser.parse_args()
    try:
        print(next(lines()))
    except EOFError:
        logging.warning("no first line", exc_info=True)
    try:
        login(args)
    except EOFError as error:
        logging.critical("cannot log in", exc_info=error)
        raise SystemExit(3) from None


cli()
