#include "common/graph/augment/geometry.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/check.h"
#include "common/numeric/arithmetic.h"
#include "common/numeric/elementary.h"
#include "common/numeric/philox.h"

namespace ringmaster::graph {
namespace {

using image::Placement;
using image::Size;
using image::Window;
using image::WithShort;
using Purpose = PhiloxStream::Purpose;

constexpr int kTries = 10;  // of a window of random area and shape

// No side of an image is longer, whatever ratio somebody allows.
constexpr uint32_t kLongest = INT32_MAX;

// To the nearest whole number, halves to even ones; x >= 0.
uint32_t RoundHalfEven(double x) {
  x = std::min(x, static_cast<double>(kLongest));
  const double below = std::floor(x);
  const double rest = x - below;
  const auto whole = static_cast<uint64_t>(below);
  const bool up = rest > 0.5 || (rest == 0.5 && whole % 2 == 1);
  return static_cast<uint32_t>(whole + (up ? 1 : 0));
}

Size SizeOf(const v1::IntList& list) {
  return {list.values(0), list.values(list.values_size() - 1)};
}

image::Filter FilterOf(v1::ResizeFilter filter) {
  return filter == v1::RESIZE_FILTER_BICUBIC ? image::Filter::kBicubic : image::Filter::kBilinear;
}

Size ResizedBy(const v1::ResizeImage& resize, const Size& size) {
  return resize.has_short_() ? WithShort(size, resize.short_()) : SizeOf(resize.size());
}

Size SquareOf(const Size& size, double fraction) {
  const auto side = static_cast<uint32_t>(fraction * std::min(size.height, size.width));
  return {std::max(side, 1U), std::max(side, 1U)};
}

// The window of a size in the middle; places between two pixels go to the even one, but those of a
// fraction to the further one.
Window Middle(const v1::CenterCrop& crop, const Size& size) {
  const Size cut = crop.has_fraction() ? SquareOf(size, crop.fraction()) : SizeOf(crop.size());
  const auto begin = [&](uint32_t whole, uint32_t part) {
    const uint32_t left = whole - part;
    return crop.has_fraction() ? (left + 1) / 2 : RoundHalfEven(left / 2.0);
  };
  return {begin(size.height, cut.height), begin(size.width, cut.width), cut};
}

Window RandomPlace(const Size& cut, const Size& size, const PhiloxStream& stream, uint64_t first) {
  return {stream.Below(first, size.height - cut.height + 1),
          stream.Below(first + 1, size.width - cut.width + 1), cut};
}

// u in [0, 1) spread over [least, most], evenly or by its logarithm.
double Spread(const v1::DoubleList& range, float u) {
  return range.values(0) + (range.values(1) - range.values(0)) * u;
}
double LogSpread(const v1::DoubleList& range, float u) {
  const double low = NaturalLog(range.values(0)), high = NaturalLog(range.values(1));
  return Exponential(low + (high - low) * u);
}

// torchvision's RandomResizedCrop.get_params: try t draws area, ratio, top and left as elements 4t
// to 4t + 3.
Window RandomArea(const v1::RandomResizedCrop& crop, const Size& size, const PhiloxStream& stream) {
  const double area = static_cast<double>(size.height) * size.width;
  for (int t = 0; t < kTries; ++t) {
    const auto first = static_cast<uint64_t>(4 * t);
    const double share = Spread(crop.scale(), stream.Uniform(first));
    const double ratio = LogSpread(crop.ratio(), stream.Uniform(first + 1));
    const Size cut{RoundHalfEven(SquareRoot(area * share / ratio)),
                   RoundHalfEven(SquareRoot(area * share * ratio))};
    const bool fits =
        cut.height > 0 && cut.width > 0 && cut.height <= size.height && cut.width <= size.width;
    if (fits) return RandomPlace(cut, size, stream, first + 2);
  }
  Size cut = size;
  const double ratio = static_cast<double>(size.width) / size.height;
  if (ratio < crop.ratio().values(0)) {
    cut.height = std::min(size.height, RoundHalfEven(size.width / crop.ratio().values(0)));
  } else if (ratio > crop.ratio().values(1)) {
    cut.width = std::min(size.width, RoundHalfEven(size.height * crop.ratio().values(1)));
  }
  cut = {std::max(cut.height, 1U), std::max(cut.width, 1U)};
  return {(size.height - cut.height) / 2, (size.width - cut.width) / 2, cut};
}

void Cut(const Window& window, Placement* placement) {
  if (placement->resized == placement->source.size) {  // not resized yet
    placement->source = {placement->source.top + window.top, placement->source.left + window.left,
                         window.size};
    placement->resized = window.size;
    placement->kept = {0, 0, window.size};
  } else {
    placement->kept = {placement->kept.top + window.top, placement->kept.left + window.left,
                       window.size};
  }
}

void Resize(const Size& size, image::Filter filter, bool antialias, Placement* placement) {
  placement->resized = size;
  placement->kept = {0, 0, size};
  placement->filter = filter;
  placement->antialias = antialias;
}

}  // namespace

bool Geometry::IsGeometric(const v1::Augmentation& op) {
  return op.has_resize() || op.has_center_crop() || op.has_random_resized_crop() ||
         (op.has_random_crop() && op.random_crop().has_size());
}

Geometry::Geometry(std::span<const v1::Augmentation> list, uint64_t seed) : seed_(seed) {
  const auto end = std::ranges::find_if_not(list, IsGeometric);
  entries_.assign(list.begin(), end);
}

Placement Geometry::Place(uint64_t step, uint64_t sample, const Size& stored) const {
  Placement placement = image::Whole(stored);
  for (size_t place = 0; place < entries_.size(); ++place) {
    const v1::Augmentation& op = entries_[place];
    const Size& now = placement.kept.size;
    // As the other operations name their streams (augment.cc).
    const auto stream = [&](Purpose purpose) {
      return PhiloxStream(seed_, purpose, step, sample, std::to_string(place));
    };
    if (op.has_center_crop()) {
      Cut(Middle(op.center_crop(), now), &placement);
    } else if (op.has_random_crop()) {
      Cut(RandomPlace(SizeOf(op.random_crop().size()), now, stream(Purpose::kRandomWindow), 0),
          &placement);
    } else if (op.has_random_resized_crop()) {
      const v1::RandomResizedCrop& crop = op.random_resized_crop();
      Cut(RandomArea(crop, now, stream(Purpose::kRandomResizedCrop)), &placement);
      Resize(SizeOf(crop.size()), FilterOf(crop.filter()), true, &placement);
    } else {
      const v1::ResizeImage& resize = op.resize();
      Resize(ResizedBy(resize, now), FilterOf(resize.filter()), resize.antialias(), &placement);
    }
  }
  return placement;
}

std::optional<Window> ErasedWindow(const v1::RandomErasing& erasing, const Size& size,
                                   const PhiloxStream& stream) {
  if (double{stream.Uniform(0)} >= erasing.probability()) return std::nullopt;
  const double area = static_cast<double>(size.height) * size.width;
  for (int t = 0; t < kTries; ++t) {
    const auto first = static_cast<uint64_t>(4 * t + 1);
    const double erased = area * Spread(erasing.area(), stream.Uniform(first));
    const double ratio = LogSpread(erasing.ratio(), stream.Uniform(first + 1));
    const Size cut{RoundHalfEven(SquareRoot(erased * ratio)),
                   RoundHalfEven(SquareRoot(erased / ratio))};
    if (cut.height >= size.height || cut.width >= size.width) continue;
    return RandomPlace(cut, size, stream, first + 2);
  }
  return std::nullopt;
}

namespace {

std::string Text(const Size& size) { return fmt::format("{} x {}", size.height, size.width); }

// Follows the least and the most that an image can be through a list.
class SizeCheck {
 public:
  explicit SizeCheck(const SizeRange& sizes) : sizes_(sizes) {}

  Status Look(const v1::Augmentation& op) {
    if (op.has_center_crop() && op.center_crop().has_fraction()) return Fraction(op.center_crop());
    if (op.has_center_crop()) return Crop(SizeOf(op.center_crop().size()));
    if (op.has_random_crop()) return Crop(SizeOf(op.random_crop().size()));
    if (resized_) return InvalidArgument("images are resized twice: once is enough");
    resized_ = true;
    if (op.has_random_resized_crop()) {
      sizes_.least = sizes_.most = SizeOf(op.random_resized_crop().size());
    } else {
      const v1::ResizeImage& resize = op.resize();
      if (!resize.has_short_()) {
        sizes_.least = sizes_.most = SizeOf(resize.size());
      } else if (sizes_.least == sizes_.most) {
        sizes_.least = sizes_.most = WithShort(sizes_.most, resize.short_());
      } else {
        shorter_ = resize.short_();
        sizes_ = {{shorter_, shorter_}, {kAny, kAny}};
      }
    }
    return absl::OkStatus();
  }
  [[nodiscard]] StatusOr<Size> Result() const {
    if (sizes_.least == sizes_.most) return sizes_.most;
    return InvalidArgument(
        "the images are of different sizes, from {} on: say how they become one, as in "
        "[{{resize: {{size: 224}}}}], [{{random_resized_crop: {{size: 224}}}}] or [{{preset: "
        "imagenet_train}}]",
        Text(sizes_.least));
  }

 private:
  static constexpr uint32_t kAny = UINT32_MAX;

  Status Crop(const Size& cut) {
    if (cut.height > sizes_.least.height || cut.width > sizes_.least.width) {
      return InvalidArgument(
          "a window of {} does not fit into images of {}, as the smallest are here: resize first",
          Text(cut), Text(sizes_.least));
    }
    sizes_.least = sizes_.most = cut;
    shorter_ = 0;
    return absl::OkStatus();
  }
  Status Fraction(const v1::CenterCrop& crop) {
    if (shorter_ > 0) sizes_.most = {shorter_, shorter_};  // as far as the square goes
    shorter_ = 0;
    sizes_ = {SquareOf(sizes_.least, crop.fraction()), SquareOf(sizes_.most, crop.fraction())};
    return absl::OkStatus();
  }

  SizeRange sizes_;
  uint32_t shorter_ = 0;  // the shorter side of images of any shape; 0: they have not one for all
  bool resized_ = false;
};

}  // namespace

StatusOr<Size> Geometry::Check(std::span<const v1::Augmentation> list, const SizeRange& sizes) {
  SizeCheck check(sizes);
  bool behind = false;
  for (size_t place = 0; place < list.size(); ++place) {
    Status problem;
    if (!IsGeometric(list[place])) {
      behind = true;
    } else if (behind) {
      problem = InvalidArgument("what changes the size of images stands at the front of the list");
    } else {
      problem = check.Look(list[place]);
    }
    if (!problem.ok()) return Annotate(problem, std::to_string(place));
  }
  return check.Result();
}

}  // namespace ringmaster::graph
