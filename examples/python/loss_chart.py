"""Draws (step, loss) points: as a picture where matplotlib is installed, else as text."""

WIDTH = 64
HEIGHT = 14


def save_picture(points, title, path):
    """False when there is no matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    axes.plot(*zip(*points), marker=".")
    axes.set(title=title, xlabel="step", ylabel="loss (mean of the epoch so far)")
    axes.set_ylim(bottom=0)
    figure.savefig(path)
    return True


def as_text(points, title):
    """A chart for a terminal: every column shows the mean of its points, and the floor is 0."""
    last_step = max(step for step, _ in points)
    top = max(loss for _, loss in points) or 1.0
    columns = [[] for _ in range(WIDTH)]
    for step, loss in points:
        columns[min(WIDTH - 1, WIDTH * step // (last_step + 1))].append(loss)
    rows = [[" "] * WIDTH for _ in range(HEIGHT)]
    for x, losses in enumerate(columns):
        if losses:
            mean = sum(losses) / len(losses)
            rows[HEIGHT - 1 - min(HEIGHT - 1, int(mean / top * HEIGHT))][x] = "*"
    labels = {0: f"{top:8.4f}", HEIGHT - 1: f"{0:8.4f}"}
    lines = [f"{labels.get(y, ''):>8} |{''.join(row).rstrip()}" for y, row in enumerate(rows)]
    axis = f"{'':8} +{'-' * WIDTH}"
    steps = f"{'':10}0{f'step {last_step}':>{WIDTH - 1}}"
    return "\n".join([title, *lines, axis, steps])
