#include "worker/backend/cpu/weights.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <vector>

#include "worker/backend/cpu/layout.h"
#include "worker/backend/cpu/storage.h"
#include "worker/backend/cpu/weight_tiles.h"

namespace ringmaster::cpu {
namespace {

constexpr int64_t kInputs = 96;
constexpr int64_t kOutputs = 192;

// Any bits but those of NaN, whose payload is not looked at.
std::vector<float> AnyFloats(size_t count) {
  std::mt19937 random(1);
  std::vector<float> values;
  while (values.size() < count) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (value == value) values.push_back(value);
  }
  return values;
}

// What a copy holds, in canonical order, by oneDNN.
std::vector<float> Canonical(const WeightCopy& copy, const DnnlDesc& desc, const Device& device) {
  std::vector<float> values(kInputs * kOutputs);
  dnnl::memory from(desc, device.engine, const_cast<void*>(copy.data()));
  dnnl::memory to(CanonicalWeightDesc({kInputs, kOutputs}, DnnlType::f32), device.engine,
                  values.data());
  dnnl::stream stream(device.engine);
  dnnl::reorder(from, to).execute(stream, from, to);
  stream.wait();
  return values;
}

}  // namespace

TEST_CASE("Weights: a copy in any layout has the values, rounded once") {
  const auto device = Device::Create(Bf16Arithmetic::kEmulated);
  REQUIRE(device.ok());
  graph::Program program;
  program.parameters.push_back({.shape = {kInputs, kOutputs}});
  const std::vector<float> values = AnyFloats(kInputs * kOutputs);
  const auto layout =
      exact::BlockLayout::Create(std::vector<exact::BlockLayout::Tensor>{{0, values.size()}});
  REQUIRE(layout.ok());
  const struct {
    DnnlType type;
    DnnlTag tag;
  } layouts[] = {{DnnlType::f32, DnnlTag::AB16b64a},   {DnnlType::f32, DnnlTag::AB16b16a},
                 {DnnlType::bf16, DnnlTag::AB8b64a2b}, {DnnlType::bf16, DnnlTag::AB8b16a2b},
                 {DnnlType::f32, DnnlTag::oi},         {DnnlType::f32, DnnlTag::io}};
  for (const auto& [type, tag] : layouts) {
    const bool rounds = type == DnnlType::bf16;
    INFO("layout " << static_cast<int>(tag));
    const DnnlDesc desc({kOutputs, kInputs}, type, tag);
    CpuWeights weights(program, *device);
    const auto copy =
        weights.Copy(0, rounds ? graph::DType::kBFloat16 : graph::DType::kFloat32, desc);
    REQUIRE(copy.ok());
    REQUIRE(weights.Place(**copy).ok());
    REQUIRE(weights.Refresh(*layout, values, {}, {}).ok());
    REQUIRE(weights.Ensure(**copy).ok());
    const std::vector<float> found = Canonical(**copy, desc, *device);
    for (size_t i = 0; i < values.size(); ++i) {
      const float expected = rounds ? static_cast<float>(BFloat16(values[i])) : values[i];
      if (std::bit_cast<uint32_t>(found[i]) == std::bit_cast<uint32_t>(expected)) continue;
      FAIL("element " << i << " is " << found[i] << ", expected " << expected);
    }
  }
}

TEST_CASE("WeightTiles: from canonical to a layout and back as oneDNN brings it over") {
  const bool wide = GENERATE(false, true);
  if (wide && !HasWideVectors()) return;
  const auto device = Device::Create(Bf16Arithmetic::kEmulated);
  REQUIRE(device.ok());
  dnnl::stream stream(device->engine);
  const struct {
    graph::Shape shape;
    DnnlType type;
    DnnlTag tag;
    bool tiles;
  } cases[] = {
      {{64, 3, 3, 32}, DnnlType::f32, DnnlTag::ABcd16b16a, true},
      {{64, 3, 3, 32}, DnnlType::f32, DnnlTag::ABcd16a16b, true},
      {{64, 3, 3, 32}, DnnlType::f32, DnnlTag::BAcd16a16b, true},
      {{64, 3, 2, 32}, DnnlType::f32, DnnlTag::Acdb32a, true},
      {{64, 1, 1, 48}, DnnlType::f32, DnnlTag::Acdb48a, true},
      {{64, 3, 3, 32}, DnnlType::bf16, DnnlTag::ABcd8a16b2a, true},
      {{64, 3, 3, 32}, DnnlType::bf16, DnnlTag::BAcd8a16b2a, true},
      {{64, 3, 3, 32}, DnnlType::bf16, DnnlTag::ABcd8b16a2b, true},
      {{64, 3, 3, 32}, DnnlType::bf16, DnnlTag::AcdB32a2b, true},
      {{64, 3, 3, 32}, DnnlType::bf16, DnnlTag::AcdB48a2b, true},  // padded to 96 outputs
      {{96, 192}, DnnlType::bf16, DnnlTag::AB8b64a2b, true},
      {{96, 192}, DnnlType::f32, DnnlTag::AB16b64a, true},
      {{96, 192}, DnnlType::f32, DnnlTag::oi, true},
      {{64, 3, 3, 24}, DnnlType::f32, DnnlTag::ABcd16b16a, false},  // tiles that are not whole
      {{72, 3, 3, 32}, DnnlType::bf16, DnnlTag::BAcd8a16b2a, false},
      {{64, 3, 3, 32}, DnnlType::f32, DnnlTag::ABcd8b8a, false},  // half a tile
  };
  for (const auto& [shape, type, tag, expected] : cases) {
    INFO("layout " << static_cast<int>(tag) << ", inputs " << shape.back());
    const DnnlDesc canonical = CanonicalWeightDesc(shape, DnnlType::f32);
    const DnnlDesc desc(WeightDims(shape), type, tag);
    const auto tiles = WeightTiles::Of(canonical, desc);
    REQUIRE(tiles.has_value() == expected);
    if (!tiles) continue;
    std::vector<float> values = AnyFloats(static_cast<size_t>(graph::Elements(shape)));
    AlignedBuffer ours(desc.get_size()), theirs(desc.get_size());
    const int64_t middle = tiles->bands() / 2;
    tiles->Fill(values.data(), ours.data(), middle, tiles->bands(), wide);
    tiles->Fill(values.data(), ours.data(), 0, middle, wide);
    dnnl::memory from(canonical, device->engine, values.data());
    dnnl::memory to(desc, device->engine, theirs.data());
    const auto reorder = [&stream](dnnl::memory& a, dnnl::memory& b) {
      dnnl::reorder(a, b).execute(stream, a, b);
      stream.wait();
    };
    if (type == DnnlType::f32) {
      reorder(from, to);
      CHECK(std::memcmp(ours.data(), theirs.data(), ours.size()) == 0);
      std::vector<float> back(values.size());
      REQUIRE(tiles->restores());
      tiles->Restore(reinterpret_cast<const float*>(ours.data()),
                     back.data() + middle * tiles->band_elements(), middle, tiles->bands());
      tiles->Restore(reinterpret_cast<const float*>(ours.data()), back.data(), 0, middle);
      CHECK(std::memcmp(back.data(), values.data(), sizeof(float) * values.size()) == 0);
      continue;
    }
    CHECK(!tiles->restores());
    std::vector<float> found(values.size());
    dnnl::memory copy(desc, device->engine, ours.data());
    dnnl::memory unpacked(canonical, device->engine, found.data());
    reorder(copy, unpacked);
    for (size_t i = 0; i < values.size(); ++i) {
      const float rounded = static_cast<float>(BFloat16(values[i]));
      if (std::bit_cast<uint32_t>(found[i]) != std::bit_cast<uint32_t>(rounded)) {
        FAIL("element " << i << " is " << found[i] << ", expected " << rounded);
      }
    }
  }
}

TEST_CASE("WeightTiles: NaN stays NaN in vectors of every length") {
  constexpr int64_t kRows = 32, kColumns = 48;
  std::vector<float> values = AnyFloats(kRows * kColumns);
  constexpr uint32_t kNans[] = {0x7f800001, 0x7fffffff, 0xff80ffff, 0xffc00000, 0x7fbf8000};
  for (size_t i = 0; i < values.size(); i += 7) values[i] = std::bit_cast<float>(kNans[i % 5]);
  for (const DnnlTag tag : {DnnlTag::AB8b64a2b, DnnlTag::BA16a16b2a}) {
    const DnnlDesc desc({kColumns, kRows}, DnnlType::bf16, tag);
    const auto tiles = WeightTiles::Of(CanonicalWeightDesc({kRows, kColumns}, DnnlType::f32), desc);
    REQUIRE(tiles.has_value());
    AlignedBuffer copies[2] = {AlignedBuffer(desc.get_size()), AlignedBuffer(desc.get_size())};
    for (const bool wide : {false, true}) {
      tiles->Fill(values.data(), copies[wide].data(), 0, tiles->bands(), wide && HasWideVectors());
    }
    CHECK(std::memcmp(copies[0].data(), copies[1].data(), desc.get_size()) == 0);
    size_t found = 0;
    for (size_t i = 0; i < desc.get_size() / sizeof(BFloat16); ++i) {
      const float value =
          static_cast<float>(reinterpret_cast<const BFloat16*>(copies[1].data())[i]);
      found += value == value ? 0 : 1;
    }
    CHECK(found == (values.size() + 6) / 7);
  }
}

TEST_CASE("Weights: what is wanted as it lies is read there, wherever a refresh finds it") {
  const auto device = Device::Create(Bf16Arithmetic::kEmulated);
  REQUIRE(device.ok());
  graph::Program program;
  program.parameters.push_back({.shape = {kInputs, kOutputs}});
  const std::vector<float> values = AnyFloats(kInputs * kOutputs), others = values;
  const auto layout =
      exact::BlockLayout::Create(std::vector<exact::BlockLayout::Tensor>{{0, values.size()}});
  REQUIRE(layout.ok());
  CpuWeights weights(program, *device);
  const auto copy = weights.Copy(0, graph::DType::kFloat32, std::nullopt);
  REQUIRE(copy.ok());
  REQUIRE(weights.Place(**copy).ok());
  CHECK(weights.HostBytes() == 0);
  CHECK(absl::IsFailedPrecondition(weights.Ensure(**copy)));
  const uint64_t before = weights.moves();
  for (int twice = 0; twice < 2; ++twice) {
    REQUIRE(weights.Refresh(*layout, values, {}, {}).ok());
    CHECK(weights.Ensure(**copy).ok());
    CHECK((*copy)->data() == values.data());
    CHECK(weights.moves() == before + 1);
    CHECK(weights.stale_copies() == 0);
  }
  REQUIRE(weights.Refresh(*layout, others, {}, {}).ok());
  CHECK((*copy)->data() == others.data());
  CHECK(weights.moves() == before + 2);
  const auto rounded = weights.Copy(0, graph::DType::kBFloat16, std::nullopt);
  REQUIRE(rounded.ok());
  CHECK(!(*rounded)->in_place());
}

TEST_CASE("Weights: a copy follows an update whose pieces hold whole pairs of its rows") {
  const auto device = Device::Create(Bf16Arithmetic::kEmulated);
  REQUIRE(device.ok());
  graph::Program program;
  program.parameters.push_back({.shape = {kInputs, kOutputs}});
  std::vector<float> values = AnyFloats(kInputs * kOutputs);
  const auto layout =
      exact::BlockLayout::Create(std::vector<exact::BlockLayout::Tensor>{{0, values.size()}});
  REQUIRE(layout.ok());
  CpuWeights weights(program, *device);
  const DnnlDesc desc({kOutputs, kInputs}, DnnlType::bf16, DnnlTag::AB8b64a2b);
  const auto copy = weights.Copy(0, graph::DType::kBFloat16, desc);
  REQUIRE(copy.ok());
  REQUIRE(weights.Place(**copy).ok());
  const auto refresh = [&] { REQUIRE(weights.Refresh(*layout, values, {}, {}).ok()); };
  // A piece is followed in ranges of 256 elements and its rest, as updates do.
  const auto update = [&](size_t piece) {
    weights.BeginUpdate();
    for (float& value : values) value = value / 3 + 1;
    for (size_t begin = 0; begin < values.size(); begin += piece) {
      const size_t end = std::min(begin + piece, values.size());
      for (size_t from = begin; from < end; from += 256) {
        weights.Follow(0, values.data(), {begin, from, std::min(from + 256, end)});
      }
    }
  };
  const auto check = [&] {
    REQUIRE(weights.Ensure(**copy).ok());
    const std::vector<float> found = Canonical(**copy, desc, *device);
    for (size_t i = 0; i < values.size(); ++i) {
      if (found[i] != static_cast<float>(BFloat16(values[i]))) FAIL("element " << i);
    }
  };
  constexpr size_t kWhole = 2 * kOutputs * 16, kOther = kWhole + 256;
  refresh();
  check();
  const auto step = [&](size_t piece, bool ends, size_t stale) {
    update(piece);
    if (ends) weights.EndUpdate();
    refresh();
    CHECK(weights.stale_copies() == stale);
    check();
  };
  step(kWhole, true, 1);  // nobody had used it when the update before began
  step(kWhole, true, 0);
  step(kWhole, true, 0);
  step(kWhole, false, 1);  // other values came than the update's
  step(kWhole, true, 0);
  // What followed once, and was not used since, did not follow the next one.
  refresh();
  refresh();
  check();
  step(kWhole, true, 1);
  step(kWhole, true, 0);
  step(kOther, true, 1);
  step(kWhole, true, 1);  // it is not tried again
}

}  // namespace ringmaster::cpu
