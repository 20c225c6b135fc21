#!/usr/bin/python3
"""Holds decoding, windows, resizing and EXIF against Pillow, byte by byte; colours and rotations
against it, but for its rounding; what is drawn against torchvision.

    image_parity.py PROGRAM

PROGRAM is image_bytes. Images are made here: JPEG of every sampling, progressive, grey and of four
colours, with restart markers (jpegtran's), PNG of every kind of pixel, of odd sizes; and files that must be errors.
"""

import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
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

    def render(self, file, augment, channels=3, sample=0, what="render"):
        """The image, or the text of an error."""
        answer = self._ask(f"{what} {file} {channels} 1 {sample} {augment}")
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


    def values(self, file, pixels, augment, sample=0):
        """Float32 of 0 to 255, of the shape of the pixels."""
        file.write_bytes(pixels.tobytes())
        height, width, channels = pixels.shape
        answer = self._ask(f"values {file} {height} {width} {channels} 1 {sample} {augment}")
        assert answer == str(pixels.size), answer
        return np.frombuffer(self._process.stdout.read(4 * pixels.size), np.float32).reshape(pixels.shape) * 255

    def draws(self, height, width, count, augment):
        """What each sample draws, a row each."""
        first = self._ask(f"draws {height} {width} 1 {count} {augment}")
        rows = [first] + [self._process.stdout.readline().decode() for _ in range(count - 1)]
        return np.array([list(map(float, row.split())) for row in rows])


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

    def restart(file, every):
        """The same image with markers after every so many rows of blocks, or blocks (B)."""
        path = file.with_stem(f"{file.stem}-restarts")
        path.write_bytes(subprocess.run(["jpegtran", "-copy", "all", "-restart", every, file], capture_output=True, check=True).stdout)
        assert b"\xff\xdd" in path.read_bytes(), path  # the interval
        files.append(path)

    for height, width in ((1, 1), (37, 150), (211, 98)):
        image = picture(rng, height, width)
        for sampling in (0, 1, 2):
            for progressive in (False, True):
                write(image, "jpg", quality=rng.randint(40, 98), subsampling=sampling, progressive=progressive)
                restart(files[-1], "1" if progressive else "3B")
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


def check_exif(program, folder):
    rng = np.random.RandomState(8)
    for orientation in range(10):  # 0 and 9 are none
        for big in (b"II*\0", b"MM\0*"):
            exif = Image.Exif()
            exif[0x010F], exif[0x0112] = "somebody", orientation
            exif.endian = "<" if big[0] == ord("I") else ">"
            exif = exif.tobytes()
            image = picture(rng, 61, 94)
            image.save(folder / "turned.jpg", quality=90, exif=exif)
            file = Image.open(folder / "turned.jpg")
            for augment, then in (("[]", lambda image: image),
                                  ("[{center_crop: {size: [40, 30]}}]", transforms.CenterCrop((40, 30))),
                                  ("[{resize: {short: 48}}]", transforms.Resize(48))):
                got = program.render(folder / "turned.jpg", augment, what="shown")
                expected = np.asarray(then(ImageOps.exif_transpose(file).convert("RGB")))
                assert np.array_equal(got, expected), (orientation, augment, got)
                ignored = program.render(folder / "turned.jpg", augment)
                assert np.array_equal(ignored, np.asarray(then(file.convert("RGB")))), (orientation, augment)
    print("60 turned and mirrored images: Pillow's bytes")


def check_colours(program, folder):
    """Pillow rounds grey, means and every result to whole numbers: two at most away from what is not rounded."""
    rng = np.random.RandomState(2)
    pixels = np.asarray(picture(rng, 37, 45))
    image = Image.fromarray(pixels)
    enhance = {"brightness": ImageEnhance.Brightness, "contrast": ImageEnhance.Contrast, "saturation": ImageEnhance.Color}
    for place, (key, kind) in enumerate(enhance.items()):
        augment = f"[{{color_jitter: {{{key}: 0.6}}}}]"
        factors = program.draws(37, 45, 20, augment)[:, place]
        for sample, factor in enumerate(factors):
            got = program.values(folder / "pixels", pixels, augment, sample)
            expected = np.asarray(kind(image).enhance(factor), dtype=float)
            assert np.abs(got - expected).max() <= 2, (key, factor, np.abs(got - expected).max())
        assert np.abs(got - np.asarray(kind(image).enhance(factor + 0.2), dtype=float)).max() > 4, "it cannot fail"
    augment = "[{color_jitter: {hue: 0.5}}]"
    for sample, shift in enumerate(program.draws(37, 45, 20, augment)[:, 3]):
        got = program.values(folder / "pixels", pixels, augment, sample)
        tensor = torch.from_numpy(pixels.copy()).permute(2, 0, 1).double() / 255
        expected = transforms.functional.adjust_hue(tensor, shift).permute(1, 2, 0).numpy() * 255
        assert np.abs(got - expected).max() < 1e-3, (shift, np.abs(got - expected).max())
    print("80 changed colours: Pillow's, but for its rounding, and torchvision's hues")


def check_rotations(program, folder):
    """Pillow drops what is behind the point; its angles are those of libm."""
    pixels = np.asarray(picture(np.random.RandomState(6), 33, 48))
    for degrees in (-180, -90, -33.25, -1, 0, 14.5, 45, 90, 179):
        got = program.values(folder / "pixels", pixels, f"[{{random_rotation: {{degrees: [{degrees}, {degrees}], fill: 40}}}}]")
        expected = np.asarray(Image.fromarray(pixels).rotate(degrees, Image.BILINEAR, fillcolor=(40, 40, 40)), dtype=float)
        away = np.abs(np.floor(got + 1e-4) - expected)
        # A place on the edge, and a whole number less some millionth, may be on either side.
        assert (away > 1).mean() < 0.001 and (away > 0).mean() < 0.01, (degrees, (away > 1).mean(), (away > 0).mean())
    print("9 rotations: Pillow's")


def check_draws(program):
    """Factors, windows and shares against torchvision's and numpy's."""
    torch.manual_seed(6)
    rng = np.random.default_rng(6)
    ours = program.draws(32, 32, DRAWS, "[{color_jitter: {brightness: 0.4, contrast: 1.5, saturation: 0.2, hue: 0.1}}]")
    jitter = transforms.ColorJitter(0.4, 1.5, 0.2, 0.1)
    theirs = [jitter.get_params(jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue) for _ in range(DRAWS)]
    for place in range(4):
        assert distance(ours[:, place], np.array([draw[1 + place] for draw in theirs])) < FARTHEST, place
    assert distance(ours[:, 1], 0.99 * ours[:, 0]) > FARTHEST, "it cannot fail"
    order = np.array([draw[0].numpy() for draw in theirs]) @ [64, 16, 4, 1]
    assert distance(ours[:, 4:] @ [64, 16, 4, 1], order) < FARTHEST

    for height, width in ((224, 224), (40, 90)):
        ours = program.draws(height, width, DRAWS, "[{random_erasing: {}}]")
        erasing = transforms.RandomErasing()
        image = torch.ones(1, height, width)
        theirs = np.zeros((DRAWS, 4))
        for row in theirs:
            if torch.rand(1) < erasing.p:
                row[:2], row[2:] = (box := erasing.get_params(image, erasing.scale, erasing.ratio, [0.0]))[:2], box[2:4]
        theirs[theirs[:, 2] == height] = 0  # none of ten fitted
        for of in (lambda w: w[:, 2] * w[:, 3], lambda w: w[:, 2], lambda w: w[:, 0], lambda w: w[:, 1]):
            assert distance(of(ours), of(theirs)) < FARTHEST, (height, width)
        assert distance(ours[:, 2], 1.1 * theirs[:, 2]) > FARTHEST, "it cannot fail"

    for alpha in (0.1, 0.2, 0.8, 1.0, 2.5):
        share = program.draws(32, 32, DRAWS, f"[{{mixup: {{alpha: {alpha}}}}}]")[:, 0].astype(np.float32)
        single = lambda a, b: rng.beta(a, b, DRAWS).astype(np.float32)  # as shares are: those near 1 become it
        assert distance(share, single(alpha, alpha)) < FARTHEST, alpha
        assert distance(share, single(1.5 * alpha, alpha)) > FARTHEST, "it cannot fail"
        # The formula of torchvision's references (transforms.py, RandomCutmix), written anew.
        cut = program.draws(56, 80, DRAWS, f"[{{cutmix: {{alpha: {alpha}}}}}]")[:, 0].astype(np.float32)
        half = np.sqrt(1 - rng.beta(alpha, alpha, DRAWS)) / 2
        sides = [np.clip(middle + (half * size).astype(int), 0, size) - np.clip(middle - (half * size).astype(int), 0, size)
                 for size in (56, 80) for middle in (rng.integers(0, size, DRAWS),)]
        assert distance(cut, (1 - sides[0] * sides[1] / (56 * 80)).astype(np.float32)) < FARTHEST, alpha
    print(f"{DRAWS} draws of jitter, erasing, mixup and cutmix: torchvision's and numpy's distributions")


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
        check_exif(program, folder)
        check_colours(program, folder)
        check_rotations(program, folder)
    check_distribution(program)
    check_draws(program)


if __name__ == "__main__":
    main()
