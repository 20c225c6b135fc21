// The elementwise family's numbers on a CPU: what a value is does not depend on where it stands,
// nor on how wide vectors are.
#include "worker/backend/cpu/packet.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "common/graph/ops/op_list.h"
#include "worker/backend/cpu/parallel.h"

namespace ringmaster::cpu {
namespace {

// y of every elementwise op, and dx of its gradient, from x = y = dy.
template <typename Visit>
void ForEachFunction(const Visit& visit) {
  (void)graph::ForEachOp([&]<typename Op>(std::type_identity<Op>) {
    const Op op;
    if constexpr (graph::UnaryOp<Op>) {
      visit(Op::kTraits.name, [op](Packet x) { return op.Forward(x); });
    } else if constexpr (graph::UnaryGradientOp<Op>) {
      visit(Op::kTraits.name, [op](Packet x) { return op.Backward(x, x, x); });
    }
    return 0;
  });
}

std::vector<float> Arguments() {
  std::vector<float> values;
  for (int i = -400; i < 400; ++i) values.push_back(static_cast<float>(i) / 37);
  return values;
}

bool SameBits(float a, float b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

}  // namespace

TEST_CASE("Packets: a value does not depend on its place in the tensor") {
  const std::vector<float> x = Arguments();
  ForEachFunction([&](const char* name, const auto& f) {
    INFO(name);
    std::vector<float> whole(x.size());
    MapPackets(static_cast<int64_t>(x.size()), f, whole.data(), x.data());
    for (size_t first : {1, 3, 8, 127, 129}) {
      for (size_t count : {1, 7, 8, 9, 128, 300}) {
        std::vector<float> part(count);
        MapPackets(static_cast<int64_t>(count), f, part.data(), x.data() + first);
        size_t equal = 0;
        for (size_t i = 0; i < count; ++i) equal += SameBits(part[i], whole[first + i]) ? 1 : 0;
        CHECK(equal == count);
      }
    }
  });
}

// body(to) writes x.size() floats.
template <typename Body>
void CheckWidths(const char* name, size_t count, const Body& body) {
  INFO(name);
  std::vector<float> narrow(count), wide(count);
  const auto into_narrow = [&](int64_t) { body(narrow.data()); };
  const auto into_wide = [&](int64_t) { body(wide.data()); };
  RunBodies(into_narrow, 0, 1);
  RunBodiesWide(into_wide, 0, 1);
  CHECK(std::memcmp(narrow.data(), wide.data(), count * sizeof(float)) == 0);
}

TEST_CASE("Loops: vectors of 512 bits give the bits of those of 256") {
  if (!HasWideVectors()) return;
  const std::vector<float> x = Arguments();
  const auto count = static_cast<int64_t>(x.size());
  ForEachFunction([&](const char* name, const auto& f) {
    CheckWidths(name, x.size(), [&](float* to) { MapPackets(count, f, to, x.data()); });
  });
  const auto slope_behind_line = [](Packet x) {
    return graph::Swish{}.Backward((x - Packet(0.3)) * x + Packet(0.7), x);
  };
  CheckWidths("a swish's slope behind a line", x.size(),
              [&](float* to) { MapPackets(count, slope_behind_line, to, x.data()); });
  const auto check = [&](const char* name, auto type) {
    using T = decltype(type);
    std::vector<T> stored(x.size()), scaled(x.size());
    Convert(x.data(), stored.data(), count);
    CheckWidths(name, x.size(), [&](float* to) {
      InStrips(
          count,
          [&](int64_t at, int64_t length, const auto* from, auto* into) {
            for (int64_t i = 0; i < length; ++i) {
              const float line = (static_cast<float>(from[i]) - 0.3F) * x[at + i] + 0.7F;
              into[i] = std::remove_reference_t<decltype(*into)>(line <= 0 ? 0.0F : line);
            }
          },
          static_cast<const T*>(stored.data()), scaled.data());
      for (int64_t i = 0; i < count; ++i) {
        to[i % 64] += static_cast<float>(scaled[i]) * static_cast<float>(stored[i]);
      }
      Convert(scaled.data(), to + 64, count - 64);
    });
  };
  check("float32", float{});
  check("bfloat16", BFloat16{});
  check("float16", Float16{});
}

TEST_CASE("Packets: NaN passes, and infinity is no NaN where the function has a value") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  ForEachFunction([&](const char* name, const auto& f) {
    INFO(name);
    float y = 0;
    MapPackets(1, f, &y, &nan);
    CHECK(std::isnan(y));
  });
  const auto at_infinity = [&](const auto& op, float x) {
    float y = 0;
    MapPackets(
        1, [&](Packet packet) { return op.Forward(packet); }, &y, &x);
    return y;
  };
  CHECK(at_infinity(graph::Sigmoid{}, infinity) == 1);
  CHECK(at_infinity(graph::Sigmoid{}, -infinity) < 1e-37F);
  CHECK(at_infinity(graph::Tanh{}, -infinity) == -1);
  CHECK(at_infinity(graph::Softplus{}, infinity) == infinity);
  CHECK(at_infinity(graph::Elu{}, -infinity) == -1);
  CHECK(at_infinity(graph::Relu6{}, infinity) == 6);
}

}  // namespace ringmaster::cpu
