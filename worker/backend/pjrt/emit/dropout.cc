// dropout, y = x keep / (1 - rate), with the bits of common/numeric/philox.h. The mask is a pure
// function of its argument, so that a gradient finds the same one; it is linear, so that one
// emitter serves both.
#include <fmt/format.h>

#include <cmath>

#include "worker/backend/pjrt/emit/emitter.h"

namespace ringmaster::pjrt {
namespace {

struct Halves {
  Tensor high, low;
};

// Of the products with a 32-bit number.
Halves Product(Builder& builder, const Tensor& words, uint64_t factor) {
  const Tensor wide = builder.Multiply(builder.Convert(words, ElementKind::kUInt64),
                                       builder.Integer(factor, words.shape, ElementKind::kUInt64));
  const Tensor upper = builder.Binary("shift_right_logical", wide,
                                      builder.Integer(32, words.shape, ElementKind::kUInt64));
  // Not a conversion of the whole, which the language leaves open where it does not fit.
  return {builder.Convert(upper, ElementKind::kUInt32),
          builder.Multiply(words, builder.Integer(factor, words.shape, ElementKind::kUInt32))};
}

// Ten rounds of Philox4x32, element by element: as Philox4x32 in common/numeric/philox.cc.
std::array<Tensor, 4> Philox(Builder& builder, std::array<Tensor, 4> counter,
                             std::array<Tensor, 2> key) {
  constexpr uint64_t kMultipliers[] = {0xD2511F53, 0xCD9E8D57}, kWeyl[] = {0x9E3779B9, 0xBB67AE85};
  const auto mixed = [&](const Tensor& a, const Tensor& b, const Tensor& c) {
    return builder.Binary("xor", builder.Binary("xor", a, b), c);
  };
  for (int round = 0; round < 10; ++round) {
    const Halves first = Product(builder, counter[0], kMultipliers[0]);
    const Halves second = Product(builder, counter[2], kMultipliers[1]);
    counter = {mixed(second.high, counter[1], key[0]), second.low,
               mixed(first.high, counter[3], key[1]), first.low};
    for (size_t i = 0; i < 2; ++i) {
      key[i] = builder.Add(key[i], builder.Integer(kWeyl[i], key[i].shape, ElementKind::kUInt32));
    }
  }
  return counter;
}

// The first `count` words of each row's stream, (N,count): element e is word e % 4 of block e / 4.
// Blocks are counted in 32 bits: a row with more of them fits no device.
Tensor Words(Builder& builder, const Tensor& keys, int64_t count) {
  const int64_t rows = keys.shape[0], blocks = (count + 3) / 4;
  const graph::Shape shape = {rows, blocks};
  std::array<Tensor, 4> named;  // key0, key1, high0, high1
  for (int64_t i = 0; i < 4; ++i) {
    const Tensor column = builder.Slice(keys, {0, i}, {rows, i + 1});
    named[static_cast<size_t>(i)] = builder.Broadcast(column, shape, {0, 1});
  }
  const std::array<Tensor, 4> words =
      Philox(builder,
             {builder.Iota(1, shape, ElementKind::kUInt32),
              builder.Integer(0, shape, ElementKind::kUInt32), named[2], named[3]},
             {named[0], named[1]});
  // Side by side: each with zeros in the places of the others. A tensor with an axis of four words
  // would be many times as large on a device that stores tiles.
  Tensor all;
  for (int64_t i = 0; i < 4; ++i) {
    const Tensor spread = builder.Pad(words[static_cast<size_t>(i)], {{0, 0}, {i, 3 - i}}, {0, 3});
    all = i == 0 ? spread : builder.Binary("or", all, spread);
  }
  return builder.Slice(all, {0, 0}, {rows, count});
}

// Whether each element of a tensor of that shape is kept: (bits >> 8) 2^-24 >= rate. Scaling by a
// power of two is exact, and the left side then a whole number: it is at least rate 2^24 where it
// is at least the next whole number.
Tensor Kept(EmitContext& context, const graph::DropoutAttributes& dropout,
            const graph::Shape& shape) {
  Builder& builder = context.builder();
  const int64_t count = dropout.per_sample ? 1 : graph::Elements(shape) / shape[0];
  const Tensor words = Words(builder, context.DropoutKeys(dropout.layer), count);
  const Tensor drawn = builder.Binary("shift_right_logical", words,
                                      builder.Integer(8, words.shape, ElementKind::kUInt32));
  const auto least = static_cast<uint64_t>(std::ceil(dropout.rate * 0x1p24));
  const Tensor kept =
      builder.Compare("GE", drawn, builder.Integer(least, words.shape, ElementKind::kUInt32));
  if (!dropout.per_sample) return builder.Reshape(kept, shape);
  return builder.Broadcast(builder.Reshape(kept, {shape[0]}), shape, {0});
}

}  // namespace

void EmitDropout(EmitContext& context) {
  Builder& builder = context.builder();
  const auto& dropout = context.attributes<graph::DropoutAttributes>();
  const Tensor x = context.Wide(0);
  const std::string key = fmt::format("mask {} {} {} {}", dropout.rate, dropout.per_sample,
                                      fmt::join(x.shape, "x"), dropout.layer);
  const Tensor kept = context.Once(key, [&] { return Kept(context, dropout, x.shape); });
  const Tensor scaled = builder.Divide(x, builder.Constant(1 - dropout.rate, x.shape));
  context.Out(0, builder.Select(kept, scaled, builder.Constant(0, x.shape)));
}

}  // namespace ringmaster::pjrt
