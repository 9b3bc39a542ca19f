"""`stoker ui`: the console in the browser."""

from __future__ import annotations

import click

from stoker.base.config import home
from stoker.cli import output
from stoker.cli.options import json_option, plane


@click.command("ui")
@click.option("--no-browser", is_flag=True, help="Print the link only; do not open a browser.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="Port on 127.0.0.1.  [default: the same port each time]",
)
@json_option('Print {"url": LINK} as the first line.')
def ui(no_browser: bool, port: int | None, as_json: bool) -> None:
    """Open the console in the browser: runs, curves, logs, files, machines.
    Ctrl-C ends the console; runs continue.

    The console can be opened only on this machine. The link works only once, and only for one minute.
    For a new link, type `stoker ui` in another terminal.
    """
    from stoker.client import Client
    from stoker.console.serve import Console, leave

    plane()  # started here, if it does not run: the console itself never starts the server
    console = Console(home(), port)

    def tell() -> None:
        link = console.link()
        if as_json:
            output.print_json({"url": link})
        else:
            print(link)
        output.flush()
        if not (no_browser or as_json):
            _open(link)

    if not console.own:
        tell()
        output.say("the console of this state folder is already running. To end the console, press Ctrl-C "
                   "in its terminal")
        return
    console.serve(Client(home(), start=False), tell)
    output.say("the console has ended; runs continue")
    leave()


def _open(link: str) -> None:
    """Show the link in the user's browser, if there is one."""
    import webbrowser
    from threading import Thread

    Thread(target=webbrowser.open, args=(link,), daemon=True).start()
