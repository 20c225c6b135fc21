// The streams that kernels draw from, against PhiloxStream.
#include "worker/backend/cuda/kernels/random.h"

#include <catch2/catch.hpp>
#include <string>

#include "common/numeric/philox.h"

namespace ringmaster::cuda {
namespace {

StreamKey KeyOf(uint64_t seed, PhiloxStream::Purpose purpose, uint64_t step, uint64_t subject,
                const std::string& layer) {
  const StreamName name = MakeStreamName(layer.data(), static_cast<int>(layer.size()));
  return MakeStreamKey(name, seed, static_cast<uint64_t>(purpose), step, subject);
}

bool Same(const StreamKey& key, const PhiloxStream& stream) {
  return key.key[0] == stream.key()[0] && key.key[1] == stream.key()[1] &&
         key.high[0] == stream.counter_high()[0] && key.high[1] == stream.counter_high()[1];
}

}  // namespace

TEST_CASE("StreamKey: layer names of every length give the stream's key") {
  std::string layer;
  while (layer.size() <= static_cast<size_t>(StreamName::kMaxLayerBytes)) {
    INFO(layer.size() << " bytes");
    const PhiloxStream stream(77, PhiloxStream::Purpose::kDropout, 5, 1234, layer);
    CHECK(Same(KeyOf(77, PhiloxStream::Purpose::kDropout, 5, 1234, layer), stream));
    layer.push_back(static_cast<char>(layer.size() * 37 + 200));  // bytes above 127 too
  }
}

TEST_CASE("StreamKey: seed, purpose, step and sample all count, in all of their bits") {
  const uint64_t words[] = {0, 1, 0x0123456789abcdef, ~uint64_t{0}};
  for (uint64_t seed : words) {
    for (uint64_t step : words) {
      for (uint64_t sample : words) {
        for (auto purpose : {PhiloxStream::Purpose::kDropout, PhiloxStream::Purpose::kRandomFlip}) {
          const PhiloxStream stream(seed, purpose, step, sample, "dropout1");
          CHECK(Same(KeyOf(seed, purpose, step, sample, "dropout1"), stream));
        }
      }
    }
  }
}

TEST_CASE("StreamKey: blocks are the stream's, near and far") {
  const PhiloxStream stream(1, PhiloxStream::Purpose::kDropout, 2, 3, "layer");
  const StreamKey key = KeyOf(1, PhiloxStream::Purpose::kDropout, 2, 3, "layer");
  for (uint64_t b : {uint64_t{0}, uint64_t{1}, uint64_t{4095}, uint64_t{1} << 32, ~uint64_t{0}}) {
    const StreamWords words = StreamBlock(key, b);
    const PhiloxBlock expected = stream.Block(b);
    for (size_t i = 0; i < 4; ++i) CHECK(words.x[i] == expected[i]);
  }
}

}  // namespace ringmaster::cuda
