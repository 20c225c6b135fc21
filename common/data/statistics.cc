#include "common/data/statistics.h"

#include "common/numeric/arithmetic.h"

namespace ringmaster::data {
namespace {

__extension__ using Wide = unsigned __int128;

struct Sums {
  Wide values = 0, squares = 0;
};

// n squares - values^2 is n^2 times the variance, exactly.
ChannelStatistics Of(const Sums& sums, uint64_t n) {
  const auto count = static_cast<double>(n);
  const Wide spread = Wide{n} * sums.squares - sums.values * sums.values;
  return {static_cast<double>(sums.values) / count,
          SquareRoot(static_cast<double>(spread) / (count * count))};
}

// Whole numbers, so that no order matters.
StatusOr<ColumnStatistics> OfImages(const Dataset& dataset, size_t number, Split split) {
  const v1::StoredColumn& column = dataset.facts().columns(static_cast<int>(number));
  const auto channels = static_cast<size_t>(column.shape(2));
  std::vector<uint8_t> pixels;
  std::vector<Sums> sums(channels);
  uint64_t count = 0;  // of a channel, over all images
  for (uint64_t sample = 0; sample < dataset.samples(split); ++sample) {
    const image::Size size = dataset.image_size(number, split, sample);
    pixels.resize(size_t{size.height} * size.width * channels);
    RING_RETURN_IF_ERROR(dataset.ReadImage(number, split, sample, image::Whole(size), pixels));
    count += pixels.size() / channels;
    for (size_t c = 0; c < channels; ++c) {
      uint64_t values = 0, squares = 0;
      for (size_t i = c; i < pixels.size(); i += channels) {
        const uint64_t pixel = pixels[i];
        values += pixel;
        squares += pixel * pixel;
      }
      sums[c].values += values;
      sums[c].squares += squares;
    }
  }
  ColumnStatistics statistics;
  if (count == 0) return statistics;
  for (const Sums& channel : sums) {
    statistics.channels.push_back(Of(channel, count));
  }
  return statistics;
}

// In two passes, of which the second one adds squares of what is left of the mean.
StatusOr<ColumnStatistics> OfFloats(const Dataset& dataset, size_t number, Split split) {
  const v1::StoredColumn& column = dataset.facts().columns(static_cast<int>(number));
  if (dataset.samples(split) == 0) return ColumnStatistics();
  std::vector<float> row(ElementsOf(column));
  const auto count = static_cast<double>(dataset.samples(split) * row.size());
  double mean = 0, squares = 0;
  for (const bool second : {false, true}) {
    double sum = 0;
    for (uint64_t sample = 0; sample < dataset.samples(split); ++sample) {
      RING_RETURN_IF_ERROR(
          dataset.Read(number, split, sample, std::as_writable_bytes(std::span(row))));
      for (const float value : row) {
        const double left = double{value} - mean;
        sum += second ? left * left : left;
      }
    }
    (second ? squares : mean) = sum / count;
  }
  return ColumnStatistics{.channels = {{mean, SquareRoot(squares)}}, .class_samples = {}};
}

StatusOr<ColumnStatistics> OfClasses(const Dataset& dataset, size_t number, Split split) {
  const v1::StoredColumn& column = dataset.facts().columns(static_cast<int>(number));
  ColumnStatistics statistics;
  if (column.shape_size() > 0 || column.limit() > kMostClasses) return statistics;
  statistics.class_samples.resize(static_cast<size_t>(column.limit()));
  for (uint64_t sample = 0; sample < dataset.samples(split); ++sample) {
    int32_t label[1] = {};
    RING_RETURN_IF_ERROR(
        dataset.Read(number, split, sample, std::as_writable_bytes(std::span(label))));
    ++statistics.class_samples[static_cast<size_t>(label[0])];
  }
  return statistics;
}

}  // namespace

StatusOr<SplitStatistics> StatisticsOf(const Dataset& dataset, Split split) {
  SplitStatistics statistics;
  for (size_t i = 0; i < static_cast<size_t>(dataset.facts().columns_size()); ++i) {
    const v1::ElementType type = dataset.facts().columns(static_cast<int>(i)).type();
    const auto look = type == v1::ELEMENT_TYPE_UINT8     ? OfImages
                      : type == v1::ELEMENT_TYPE_FLOAT32 ? OfFloats
                                                         : OfClasses;
    RING_ASSIGN_OR_RETURN(statistics.columns.emplace_back(), look(dataset, i, split));
  }
  return statistics;
}

}  // namespace ringmaster::data
