#include "common/data/statistics.h"

#include "common/arithmetic.h"

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

}  // namespace

StatusOr<SplitStatistics> StatisticsOf(const Dataset& dataset, Split split) {
  const v1::DatasetFacts& facts = dataset.facts();
  const size_t channels = facts.channels();
  const size_t places = size_t{facts.height()} * facts.width();
  SplitStatistics statistics;
  statistics.class_samples.resize(facts.classes());
  std::vector<Sums> sums(channels);
  std::vector<uint8_t> pixels(places * channels);
  for (uint64_t sample = 0; sample < dataset.samples(split); ++sample) {
    RING_ASSIGN_OR_RETURN(const int32_t label, dataset.Read(split, sample, pixels));
    ++statistics.class_samples[static_cast<size_t>(label)];
    for (size_t c = 0; c < channels; ++c) {
      uint64_t values = 0, squares = 0;
      for (size_t i = c; i < pixels.size(); i += channels) {
        values += pixels[i];
        squares += uint64_t{pixels[i]} * pixels[i];
      }
      sums[c].values += values;
      sums[c].squares += squares;
    }
  }
  for (const Sums& channel : sums) {
    statistics.channels.push_back(Of(channel, dataset.samples(split) * places));
  }
  return statistics;
}

}  // namespace ringmaster::data
