"""A table on a full disk."""
import csv


def write_table(path, rows):
    with open(path, "w", newline="") as f:  # here
        writer = csv.writer(f)
        for row in rows:
            writer.writerow(row)


write_table("table.csv", [(i, i * i) for i in range(10)])
print("small table written")
write_table("/dev/full", [(i, i * i) for i in range(10)])
