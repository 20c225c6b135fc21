#!/usr/bin/python3
"""Holds decoding, windows and resizing against Pillow, byte by byte, and crops against torchvision.

    image_parity.py PROGRAM

PROGRAM is image_bytes. Images are made here: JPEG of every sampling, progressive, grey and of four
colours, PNG of every kind of pixel, of odd sizes; and files that must be errors.
"""

import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np
import torch
from PIL import Image
from torchvision import transforms

DRAWS = 20_000
# Kolmogorov and Smirnov's distance of two such samples is above this once in a million times.
FARTHEST = np.sqrt(-np.log(1e-6 / 2) / DRAWS)


class Program:
    def __init__(self, path):
        self._process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def _ask(self, line):
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().decode().strip()

    def render(self, file, augment, channels=3, sample=0):
        """The image, or the text of an error."""
        answer = self._ask(f"render {file} {channels} 1 {sample} {augment}")
        if answer.startswith("error"):
            return answer
        height, width = map(int, answer.split())
        shape = (height, width, channels)
        return np.frombuffer(self._process.stdout.read(height * width * channels), np.uint8).reshape(shape)

    def places(self, height, width, count, augment):
        """(count, 4): top, left, height, width."""
        first = self._ask(f"place {height} {width} 1 {count} {augment}")
        rows = [first] + [self._process.stdout.readline().decode() for _ in range(count - 1)]
        return np.array([list(map(int, row.split())) for row in rows])


def picture(rng, height, width):
    y, x = np.mgrid[0:height, 0:width]
    waves = [128 + 100 * np.sin(x / 7 + c) + 60 * np.cos(y / (5 + c)) for c in range(3)]
    return Image.fromarray(np.clip(np.stack(waves, -1) + rng.normal(0, 12, (height, width, 3)), 0, 255).astype(np.uint8))


def corpus(folder):
    """Files of every kind, three sizes each."""
    rng, number, files = np.random.RandomState(5), 0, []

    def write(image, ending, **options):
        nonlocal number
        number += 1
        path = folder / f"{number:03}.{ending}"
        image.save(path, **options)
        files.append(path)

    for height, width in ((1, 1), (37, 150), (211, 98)):
        image = picture(rng, height, width)
        for sampling in (0, 1, 2):
            for progressive in (False, True):
                write(image, "jpg", quality=rng.randint(40, 98), subsampling=sampling, progressive=progressive)
        exif = Image.Exif()
        exif[0x0112] = 6  # turned by a quarter, which is ignored
        write(image, "jpeg", quality=90, exif=exif)
        for mode in ("L", "CMYK"):
            for progressive in (False, True):
                write(image.convert(mode), "jpg", quality=85, progressive=progressive)
        for mode in ("1", "L", "P", "RGB", "RGBA"):
            write(image.convert(mode), "png")
        write(image.convert("L").convert("LA"), "png")
        write(image.quantize(4), "png", bits=2)
        write(image.quantize(16), "png", transparency=3)
        write(image.convert("L").convert("P"), "png")
    return files


def check_whole(program, files):
    for file in files:
        got = program.render(file, "[]")
        assert np.array_equal(got, np.asarray(Image.open(file).convert("RGB"))), (file, got)
    print(f"{len(files)} files whole: Pillow's bytes")


def check_presets(program, files):
    """Evaluation as torchvision's transforms have it, of images of any size."""
    to_224 = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224)])
    to_wide = transforms.Compose([transforms.Resize((33, 90), transforms.InterpolationMode.BICUBIC)])
    for file in files:
        image = Image.open(file).convert("RGB")
        for augment, expected in (("[{resize: {short: 256}}, {center_crop: {size: 224}}]", to_224),
                                  ("[{resize: {size: [33, 90], filter: bicubic}}]", to_wide)):
            got = program.render(file, augment)
            assert np.array_equal(got, np.asarray(expected(image))), (file, augment, got)
    print(f"{2 * len(files)} evaluations: torchvision's bytes")


def check_windows(program, files):
    """A window is decoded alone, and has the bytes of the whole image there."""
    draw = random.Random(3)
    for case in range(400):
        file = draw.choice(files)
        image = Image.open(file).convert("RGB")
        augment = f"[{{random_resized_crop: {{size: [{draw.randint(1, 80)}, {draw.randint(1, 80)}]}}}}]"
        got = program.render(file, augment, sample=case)
        size = got.shape[:2]
        top, left, height, width = program.places(image.height, image.width, case + 1, augment)[case]
        expected = image.crop((left, top, left + width, top + height)).resize(size[::-1], Image.BILINEAR)
        assert np.array_equal(got, np.asarray(expected)), (file, augment, case)
    print("400 random windows: Pillow's bytes")


def distance(ours, theirs):
    """Kolmogorov and Smirnov's, of two samples of one size."""
    places = np.sort(np.concatenate([ours, theirs]))
    share = [np.searchsorted(np.sort(one), places, side="right") / len(one) for one in (ours, theirs)]
    return np.abs(share[0] - share[1]).max()


def check_distribution(program):
    torch.manual_seed(4)
    for height, width in ((375, 500), (640, 160), (32, 32)):
        ours = program.places(height, width, DRAWS, "[{random_resized_crop: {size: 224}}]")
        image = Image.new("L", (width, height))
        theirs = np.array([transforms.RandomResizedCrop.get_params(image, (0.08, 1), (3 / 4, 4 / 3))
                           for _ in range(DRAWS)])
        worst = max(distance(of(ours), of(theirs)) for of in (
            lambda w: w[:, 2] * w[:, 3], lambda w: w[:, 3] / w[:, 2], lambda w: w[:, 0], lambda w: w[:, 1]))
        assert worst < FARTHEST, (height, width, worst)
        other = program.places(height, width, DRAWS, "[{random_resized_crop: {size: 224, scale: [0.15, 1]}}]")
        assert distance(other[:, 2] * other[:, 3], theirs[:, 2] * theirs[:, 3]) > FARTHEST, "it cannot fail"
    print(f"{DRAWS} random crops of three sizes: torchvision's distribution")


def check_errors(program, folder):
    image = picture(np.random.RandomState(1), 90, 120)
    image.save(folder / "whole.jpg", quality=90)
    image.save(folder / "whole.png")
    for name in ("whole.jpg", "whole.png"):
        bytes_of = (folder / name).read_bytes()
        for part in (0.02, 0.5, 0.95):
            (folder / "cut").write_bytes(bytes_of[:int(part * len(bytes_of))])
            answer = program.render(folder / "cut", "[]")
            assert isinstance(answer, str), (name, part)
    deep = Image.fromarray((np.arange(900).reshape(30, 30) * 60).astype(np.uint16))
    deep.save(folder / "deep.png")
    assert "16 bits" in program.render(folder / "deep.png", "[]")
    image.save(folder / "one.gif")
    assert "a GIF" in program.render(folder / "one.gif", "[]")
    wide = (folder / "whole.jpg").read_bytes()
    at = wide.index(b"\xff\xc0") + 5  # height and width of the frame's header
    (folder / "huge.jpg").write_bytes(wide[:at] + b"\xff\xdc\xff\xdc" + wide[at + 4:])
    assert "at most" in program.render(folder / "huge.jpg", "[]")
    print("cut files, 16 bits, another kind and a huge header: errors")


def main():
    program = Program(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        files = corpus(folder)
        check_whole(program, files)
        check_presets(program, files)
        check_windows(program, files)
        check_errors(program, folder)
    check_distribution(program)


if __name__ == "__main__":
    main()
