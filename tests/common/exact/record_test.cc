#include "common/exact/record.h"

#include <catch2/catch.hpp>
#include <limits>
#include <vector>

namespace ringmaster::exact {
namespace {

constexpr double kDoubleNaN = std::numeric_limits<double>::quiet_NaN();
using Values = std::vector<double>;

TEST_CASE("Record: shards add up, whoever holds them") {
  Record one(3, 2);
  one.AddShard(0, 1.5, 2, 4, Values{4 * 0.5, 4 * -1.0}, Values{4 * 0.25, 4 * 2.0}, 0);
  one.AddShard(1, 0.25, 1, 4, Values{4 * 1.5, 4 * 1.0}, Values{4 * 0.75, 4 * 4.0}, 0);
  one.AddShard(2, 0.0, 0, 0, Values{0, 0}, Values{0, 0}, 0);
  REQUIRE(one.loss_sum() == 1.75);
  REQUIRE(one.correct() == 3);
  REQUIRE(one.samples() == 8);
  REQUIRE(one.mean(0) == 1.0);
  REQUIRE(one.mean(1) == 0.0);
  REQUIRE(one.variance(0) == 0.5);
  REQUIRE(one.variance(1) == 3.0);
  REQUIRE(one.first_flag().flag.kind == FlagKind::kNone);

  Record a(3, 2);
  Record b(3, 2);
  b.AddShard(1, 0.25, 1, 4, Values{4 * 1.5, 4 * 1.0}, Values{4 * 0.75, 4 * 4.0}, 0);
  a.AddShard(2, 0.0, 0, 0, Values{0, 0}, Values{0, 0}, 0);
  a.AddShard(0, 1.5, 2, 4, Values{4 * 0.5, 4 * -1.0}, Values{4 * 0.25, 4 * 2.0}, 0);
  for (size_t i = 0; i < a.integers().size(); ++i) a.integers()[i] += b.integers()[i];
  REQUIRE(std::equal(a.integers().begin(), a.integers().end(), one.integers().begin()));

  one.Clear();
  for (const int64_t integer : one.integers()) REQUIRE(integer == 0);
  REQUIRE(one.mean(0) == 0.0);
}

TEST_CASE("Record: lies in whole blocks of the record's tensor") {
  const Record small(8, 0);
  REQUIRE(small.integers().size() == 256);
  REQUIRE(small.blocks().size() == 1);
  REQUIRE(small.blocks()[0].count == 11);

  const Record large(10, 500);  // 3 + 1000 + 10
  REQUIRE(large.integers().size() == 4 * 256);
  REQUIRE(large.blocks().size() == 4);
  for (uint32_t b = 0; b < 4; ++b) {
    REQUIRE(large.blocks()[b].tensor == kRecordTensor);
    REQUIRE(large.blocks()[b].index == b);
    REQUIRE(large.blocks()[b].count == (b < 3 ? 256 : 1013 - 768));
  }
  REQUIRE(Record(253, 0).blocks().size() == 1);
  REQUIRE(Record(254, 0).blocks().size() == 2);
}

TEST_CASE("Record: the first flagged shard comes back with tensor and kind") {
  Record record(4, 0);
  record.AddShard(3, 0, 0, 1, {}, {}, EncodeFlag(FlagKind::kNotFinite, 0));
  record.AddShard(2, 0, 0, 1, {}, {}, EncodeFlag(FlagKind::kTooLarge, 7));
  REQUIRE(record.first_flag().shard == 2);
  REQUIRE(record.first_flag().flag.kind == FlagKind::kTooLarge);
  REQUIRE(record.first_flag().flag.tensor == 7);
}

TEST_CASE("Record: a value that does not fit adds nothing and flags the shard") {
  struct Case {
    double loss;
    uint64_t correct;
    double mean;
    double variance;
    FlagKind kind;
  };
  const std::vector<Case> cases = {{kDoubleNaN, 1, 1, 1, FlagKind::kNotFinite},
                                   {1, 1, -1e30, 1, FlagKind::kTooLarge},
                                   {1, 1, 1, kDoubleNaN, FlagKind::kNotFinite},
                                   {1, 1, 1e30, kDoubleNaN, FlagKind::kTooLarge},
                                   {1, uint64_t{1} << 60, 1, 1, FlagKind::kTooLarge},
                                   {1, ~uint64_t{0}, 1, 1, FlagKind::kTooLarge}};
  for (const Case& value : cases) {
    Record record(4, 1);
    record.AddShard(1, value.loss, value.correct, 2, Values{value.mean}, Values{value.variance}, 0);
    REQUIRE(record.first_flag().shard == 1);
    REQUIRE(record.first_flag().flag.kind == value.kind);
    REQUIRE(record.first_flag().flag.tensor == kRecordTensor);
    REQUIRE(record.loss_sum() == (value.loss == 1 ? 1 : 0));
    REQUIRE(record.correct() == (value.correct == 1 ? 1 : 0));
    REQUIRE(record.samples() == 2);
    REQUIRE(record.mean(0) == (value.mean == 1 ? 0.5 : 0));
    REQUIRE(record.variance(0) == (value.variance == 1 ? 0.5 : 0));
  }
}

TEST_CASE("Record: a flag of the gradient comes before one of the scalars") {
  Record record(1, 0);
  record.AddShard(0, kDoubleNaN, 0, 1, {}, {}, EncodeFlag(FlagKind::kTooLarge, 5));
  REQUIRE(record.first_flag().flag.tensor == 5);
  REQUIRE(record.first_flag().flag.kind == FlagKind::kTooLarge);
  REQUIRE(record.loss_sum() == 0);
}

}  // namespace
}  // namespace ringmaster::exact
