"""A question to a user who is not there."""
def ask(question, default=None):
    """Yes or no."""
    while True:
        answer = input(question + " [y/n] ").strip().lower()  # here
        if answer in ("y", "n"):
            return answer == "y"


print("This will train for 3 epochs.")
if ask("Overwrite the old results?"):
    print("ok")
