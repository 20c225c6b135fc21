#include "common/exact/record.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/support/wide_fixed.h"

namespace ringmaster::exact {
namespace {

constexpr double kDoubleNaN = std::numeric_limits<double>::quiet_NaN();
using Values = std::vector<double>;

// Of a loss and a count.
RecordShape Shape(uint32_t shards, size_t statistics) {
  return {.shards = shards, .counts = {false, true}, .statistics = statistics};
}
double LossOf(const Record& record) { return record.scalars()[0]; }
double CorrectOf(const Record& record) { return record.scalars()[1]; }

TEST_CASE("Record: shards add up, whoever holds them") {
  Record one(Shape(3, 2));
  one.AddShard(0, 4, Values{1.5, 2}, Values{4 * 0.5, 4 * -1.0}, Values{4 * 0.25, 4 * 2.0}, 0);
  one.AddShard(1, 4, Values{0.25, 1}, Values{4 * 1.5, 4 * 1.0}, Values{4 * 0.75, 4 * 4.0}, 0);
  one.AddShard(2, 0, Values{0.0, 0}, Values{0, 0}, Values{0, 0}, 0);
  REQUIRE(LossOf(one) == 1.75);
  REQUIRE(CorrectOf(one) == 3);
  REQUIRE(one.samples() == 8);
  REQUIRE(one.mean(0) == 1.0);
  REQUIRE(one.mean(1) == 0.0);
  REQUIRE(one.variance(0) == 0.5);
  REQUIRE(one.variance(1) == 3.0);
  REQUIRE(one.first_flag().flag.kind == FlagKind::kNone);

  Record a(Shape(3, 2));
  Record b(Shape(3, 2));
  b.AddShard(1, 4, Values{0.25, 1}, Values{4 * 1.5, 4 * 1.0}, Values{4 * 0.75, 4 * 4.0}, 0);
  a.AddShard(2, 0, Values{0.0, 0}, Values{0, 0}, Values{0, 0}, 0);
  a.AddShard(0, 4, Values{1.5, 2}, Values{4 * 0.5, 4 * -1.0}, Values{4 * 0.25, 4 * 2.0}, 0);
  for (size_t i = 0; i < a.integers().size(); ++i) a.integers()[i] += b.integers()[i];
  REQUIRE(std::equal(a.integers().begin(), a.integers().end(), one.integers().begin()));

  one.Clear();
  for (const int64_t integer : one.integers()) REQUIRE(integer == 0);
  REQUIRE(one.mean(0) == 0.0);
}

TEST_CASE("Record: lies in whole blocks of the record's tensor") {
  const Record small(Shape(8, 0));
  REQUIRE(small.integers().size() == 256);
  REQUIRE(small.blocks().size() == 1);
  REQUIRE(small.blocks()[0].count == 12);

  const Record large(Shape(10, 500));  // two counts, two integers of 1 + 1000 values, ten flags
  REQUIRE(large.integers().size() == 8 * 256);
  REQUIRE(large.blocks().size() == 8);
  for (uint32_t b = 0; b < 8; ++b) {
    REQUIRE(large.blocks()[b].tensor == kRecordTensor);
    REQUIRE(large.blocks()[b].index == b);
    REQUIRE(large.blocks()[b].count == (b < 7 ? 256 : 2014 - 1792));
  }
  REQUIRE(Record(Shape(252, 0)).blocks().size() == 1);
  REQUIRE(Record(Shape(253, 0)).blocks().size() == 2);
}

TEST_CASE("Record: any number of counts and real values, in any order") {
  Record record({.shards = 2, .counts = {true, false, true, false}, .statistics = 1});
  record.AddShard(0, 4, Values{1, 0.5, 3, -2.25}, Values{4}, Values{8}, 0);
  record.AddShard(1, 4, Values{2, 0.25, 5, 1.0}, Values{4}, Values{8}, 0);
  REQUIRE(record.scalars() == Values{3, 0.75, 8, -1.25});
  REQUIRE(record.samples() == 8);
  REQUIRE(record.mean(0) == 1);
  REQUIRE(record.variance(0) == 2);
  // Counts stand beside the samples, where integers are small.
  REQUIRE(record.integers()[0] == 8);
  REQUIRE(record.integers()[1] == 3);
  REQUIRE(record.integers()[2] == 8);
}

TEST_CASE("Record: the first flagged shard comes back with tensor and kind") {
  Record record(Shape(4, 0));
  record.AddShard(3, 1, Values{0, 0}, {}, {}, EncodeFlag(FlagKind::kNotFinite, 0));
  record.AddShard(2, 1, Values{0, 0}, {}, {}, EncodeFlag(FlagKind::kTooLarge, 7));
  REQUIRE(record.first_flag().shard == 2);
  REQUIRE(record.first_flag().flag.kind == FlagKind::kTooLarge);
  REQUIRE(record.first_flag().flag.tensor == 7);
}

TEST_CASE("Record: a value that does not fit adds nothing and flags the shard") {
  struct Case {
    double loss;
    double correct;
    double mean;
    double variance;
    FlagKind kind;
  };
  const std::vector<Case> cases = {
      {kDoubleNaN, 1, 1, 1, FlagKind::kNotFinite}, {1, 1, -1e30, 1, FlagKind::kTooLarge},
      {1, 1, 1, kDoubleNaN, FlagKind::kNotFinite}, {1, 1, 1e30, kDoubleNaN, FlagKind::kTooLarge},
      {1, 0x1p60, 1, 1, FlagKind::kTooLarge},      {1, -1, 1, 1, FlagKind::kTooLarge},
      {1, kDoubleNaN, 1, 1, FlagKind::kTooLarge}};
  for (const Case& value : cases) {
    Record record(Shape(4, 1));
    record.AddShard(1, 2, Values{value.loss, value.correct}, Values{value.mean},
                    Values{value.variance}, 0);
    REQUIRE(record.first_flag().shard == 1);
    REQUIRE(record.first_flag().flag.kind == value.kind);
    REQUIRE(record.first_flag().flag.tensor == kRecordTensor);
    REQUIRE(LossOf(record) == (value.loss == 1 ? 1 : 0));
    REQUIRE(CorrectOf(record) == (value.correct == 1 ? 1 : 0));
    REQUIRE(record.samples() == 2);
    REQUIRE(record.mean(0) == (value.mean == 1 ? 0.5 : 0));
    REQUIRE(record.variance(0) == (value.variance == 1 ? 0.5 : 0));
  }
}

TEST_CASE("Record: a flag of the gradient comes before one of the scalars") {
  Record record(Shape(1, 0));
  record.AddShard(0, 1, Values{kDoubleNaN, 0}, {}, {}, EncodeFlag(FlagKind::kTooLarge, 5));
  REQUIRE(record.first_flag().flag.tensor == 5);
  REQUIRE(record.first_flag().flag.kind == FlagKind::kTooLarge);
  REQUIRE(LossOf(record) == 0);
}

// What the shards of a step bring; statistics 0 and 1 are a mean and a variance times n_s.
struct ShardScalars {
  double loss = 0;
  Values statistics{0, 0};
};

void AddTo(Record* record, uint32_t shard, const ShardScalars& scalars) {
  record->AddShard(shard, 1, Values{scalars.loss, 1}, Values{scalars.statistics[0]},
                   Values{scalars.statistics[1]}, 0);
}

Record RecordOf(const std::vector<ShardScalars>& all) {
  Record record(Shape(static_cast<uint32_t>(all.size()), 1));
  for (uint32_t shard = 0; shard < all.size(); ++shard) AddTo(&record, shard, all[shard]);
  return record;
}

// The smallest power of two of shards that holds `shards`, as an exponent.
int CeilLog2(size_t shards) { return static_cast<int>(std::bit_width(shards - 1)); }

// Every magnitude that fits a record of so many shards, from 2^-70 on, and values of few bits whose
// sums are awkward. Two's powers and their neighbours often.
double AnyValue(std::mt19937_64* random, size_t shards) {
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(*random);
  };
  const int exponent = draw(-70, 61 - CeilLog2(shards));
  const double significand =
      draw(0, 3) == 0 ? 1.0 : std::uniform_real_distribution<double>(1, 2)(*random);
  const double value = std::ldexp(significand, exponent);
  const double beside = draw(0, 3) == 0 ? std::nextafter(value, 0.0) : value;
  return draw(0, 1) == 0 ? beside : -beside;
}

// How far a value of the record may be from the sum of what was added: half a unit for each shard,
// and four roundings to float64.
WideFixed Allowed(size_t shards, double value) {
  const int fraction_bits = std::min(52, 62 - CeilLog2(shards));
  return WideFixed(static_cast<double>(shards) * std::ldexp(1, -fraction_bits - 1)) +
         WideFixed(std::fabs(value) * 0x1.1p-51);
}

bool IsNear(double value, const WideFixed& sum, size_t shards) {
  return (WideFixed(value) - sum).Abs() <= Allowed(shards, value);
}

TEST_CASE("Record: sums of any finite size are those of the reals, for any number of shards") {
  std::mt19937_64 random(7);
  for (const size_t shards : {1U, 2U, 8U, 100U, 1024U, 1025U, 5000U}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<ShardScalars> all(shards);
      WideFixed loss, mean, variance;
      for (ShardScalars& shard : all) {
        shard = {AnyValue(&random, shards),
                 {AnyValue(&random, shards), std::fabs(AnyValue(&random, shards))}};
        loss += WideFixed(shard.loss);
        mean += WideFixed(shard.statistics[0]);
        variance += WideFixed(shard.statistics[1]);
      }
      const Record record = RecordOf(all);
      const auto count = static_cast<double>(shards);
      REQUIRE(record.first_flag().flag.kind == FlagKind::kNone);
      REQUIRE(IsNear(LossOf(record), loss, shards));
      REQUIRE(IsNear(record.mean(0) * count, mean, shards));
      REQUIRE(IsNear(record.variance(0) * count, variance, shards));
    }
  }
}

TEST_CASE("Record: the sum does not depend on who holds which shard, nor on the order") {
  std::mt19937_64 random(11);
  for (int round = 0; round < 50; ++round) {
    const auto shards = std::uniform_int_distribution<size_t>(1, 40)(random);
    std::vector<ShardScalars> all(shards);
    for (ShardScalars& shard : all) {
      shard = {AnyValue(&random, shards), {AnyValue(&random, shards), AnyValue(&random, shards)}};
    }
    const Record expected = RecordOf(all);
    std::vector<uint32_t> order(shards);
    for (uint32_t shard = 0; shard < shards; ++shard) order[shard] = shard;
    std::shuffle(order.begin(), order.end(), random);
    std::vector<Record> members(3, Record(Shape(static_cast<uint32_t>(shards), 1)));
    for (const uint32_t shard : order) AddTo(&members[random() % 3], shard, all[shard]);
    std::shuffle(members.begin(), members.end(), random);
    Record total = members[0];
    for (size_t i = 0; i < total.integers().size(); ++i) {
      for (const size_t member : {1U, 2U}) {
        total.integers()[i] = WrappingAdd(total.integers()[i], members[member].integers()[i]);
      }
    }
    REQUIRE(std::ranges::equal(total.integers(), expected.integers()));
    REQUIRE(LossOf(total) == LossOf(expected));
  }
}

TEST_CASE("Record: variances of large activations and of tiny ones stand side by side") {
  // 64 samples with values about 1e6, and 64 whose spread is 1e-6.
  const Record record =
      RecordOf({{150, {64 * 1e6, 64 * 1e12}}, {150, {64 * 1e-6, 64 * 1e-12}}, {0, {-64 * 1e6, 0}}});
  REQUIRE(record.first_flag().flag.kind == FlagKind::kNone);
  REQUIRE(LossOf(record) == 300);
  REQUIRE(record.mean(0) == Approx(64 * 1e-6 / 3).epsilon(1e-10));
  REQUIRE(record.variance(0) == Approx(64 * 1e12 / 3).epsilon(1e-12));
  const Record tiny = RecordOf({{0, {0, 64 * 1e-12}}, {0, {0, 64 * 3e-12}}});
  REQUIRE(tiny.variance(0) == Approx(64 * 2e-12).epsilon(1e-5));
}

TEST_CASE("Record: every shard at its limit does not wrap, one step beyond sets the flag") {
  for (const size_t shards : {1U, 3U, 8U, 1024U, 4096U}) {
    const double limit = std::ldexp(1, 62 - CeilLog2(shards));
    const double largest = std::nextafter(limit, 0.0);
    for (const double value : {largest, -std::floor(largest)}) {
      const Record record = RecordOf(std::vector<ShardScalars>(shards, {value, {value, value}}));
      REQUIRE(record.first_flag().flag.kind == FlagKind::kNone);
      REQUIRE(LossOf(record) == Approx(value * static_cast<double>(shards)).epsilon(1e-15));
      REQUIRE(record.variance(0) == Approx(value).epsilon(1e-15));
    }
    // The largest fraction from each: they carry into whole units.
    const double below_zero = -0x1p-1074;
    const Record carried =
        RecordOf(std::vector<ShardScalars>(shards, {below_zero, {below_zero, below_zero}}));
    REQUIRE(LossOf(carried) == 0);
    for (const double value : {limit, -limit}) {
      std::vector<ShardScalars> all(shards, {1, {1, 1}});
      all.back().statistics[1] = value;
      const Record record = RecordOf(all);
      REQUIRE(record.first_flag().shard == shards - 1);
      REQUIRE(record.first_flag().flag.kind == FlagKind::kTooLarge);
      REQUIRE(LossOf(record) == static_cast<double>(shards));
      REQUIRE(record.variance(0) == Approx(double(shards - 1) / double(shards)));
    }
  }
}

}  // namespace
}  // namespace ringmaster::exact
