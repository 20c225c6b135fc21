#include "coordinator/logic/run/run_report.h"

#include <catch2/catch.hpp>

#include "coordinator/logic/record.h"
#include "tests/coordinator/logic/fixtures.h"

namespace ringmaster::coordinator {
namespace {

using std::chrono::milliseconds;

const Options kReportOptions;

v1::Progress Said(uint64_t applied, double rate) {
  v1::Progress said;
  said.set_applied(applied);
  said.set_samples_per_second(rate);
  return said;
}

v1::Regroup Regrouped(uint64_t counter, uint64_t start_step, uint32_t recomputed = 0) {
  v1::Regroup regroup;
  *regroup.mutable_generation() = ToProto({1, counter});
  regroup.set_start_step(start_step);
  regroup.set_shards_recomputed(recomputed);
  return regroup;
}

v1::JobStatus Shown(const RunReport& report, uint64_t committed) {
  v1::JobStatus status;
  report.Describe(committed, status);
  return status;
}

TEST_CASE(
    "RunReport: figures are those of the member that is furthest, its time that of the step") {
  RunReport report(kReportOptions, {});
  report.OnProgress(Said(5, 10), 100, {milliseconds(1), 1'000});
  report.OnProgress(Said(4, 99), 100, {milliseconds(2), 2'000});
  CHECK(Shown(report, 4).samples_per_second() == 10);
  CHECK(Shown(report, 4).last_step_unix_ms() == 1'000);
  report.OnProgress(Said(5, 11), 100, {milliseconds(3), 3'000});
  CHECK(Shown(report, 4).samples_per_second() == 11);
  CHECK(Shown(report, 4).last_step_unix_ms() == 1'000);
  CHECK(report.newest_step() == 5);
  CHECK(Shown(report, 4).step() == 4);
}

TEST_CASE("RunReport: a generation that begins earlier takes later figures out of the history") {
  RunReport report(kReportOptions, {});
  report.OnProgress(Said(5, 10), 100, AtMs(0));
  (void)report.history().Take(AtMs(0));
  report.GoOnFrom(5, 0);
  CHECK_FALSE(report.history().Take(AtMs(0)).forget_after);
  report.GoOnFrom(4, 0);
  CHECK(report.history().Take(AtMs(0)).forget_after == uint64_t{4});
  CHECK(report.newest_step() == 4);
  report.GoOnFrom(4, 9);  // nobody had told of what was applied
  CHECK(report.history().Take(AtMs(0)).forget_after == uint64_t{4});
}

TEST_CASE("RunReport: skipped steps are those that the last member of all says, and never fall") {
  RunReport report(kReportOptions, {});
  v1::Progress said = Said(10, 0);
  said.set_updates(7);
  report.CountSkipped(said, 10);
  CHECK(Shown(report, 10).updates() == 10);  // without a loss scale none is skipped
  said.set_loss_scale(2);
  report.CountSkipped(said, 11);  // its word is older than what it has
  CHECK(Shown(report, 10).updates() == 10);
  report.CountSkipped(said, 10);
  CHECK(Shown(report, 10).updates() == 7);
  said.set_updates(11);  // impossible
  report.CountSkipped(said, 10);
  said.set_updates(9);
  report.CountSkipped(said, 10);
  CHECK(Shown(report, 10).updates() == 7);
}

TEST_CASE("RunReport: the newest regroups stay, all are counted, also across a restart") {
  Options options;
  options.max_regroups = 2;
  RunReport first(options, {});
  for (uint32_t i = 1; i <= 3; ++i) first.OnRegroup(Regrouped(i, 10 * i, i));
  first.OnRewind();
  CHECK(first.CountStateFault() == 1);
  const v1::JobStatus shown = Shown(first, 30);
  REQUIRE(shown.regroups_size() == 2);
  CHECK(shown.regroups(0).start_step() == 20);
  CHECK(shown.regroup_count() == 3);
  CHECK(shown.shards_recomputed() == 6);
  RunReport second(options, shown);
  second.OnRegroup(Regrouped(4, 40, 1));
  CHECK(Shown(second, 40).regroup_count() == 4);
  CHECK(Shown(second, 40).shards_recomputed() == 7);
  CHECK(Shown(second, 40).rewinds() == 1);
  CHECK(second.CountStateFault() == 2);
  CHECK(second.StartOf({1, 3}) == 30);
  CHECK(second.StartOf({1, 9}) == 0);
  v1::CheckpointRef from;
  from.set_step(8);
  second.OnResumed(from);
  CHECK(second.StartOf({1, 9}) == 8);
}

TEST_CASE("RunReport: how long a ring took to connect is told once, of the newest regroup") {
  RunReport report(kReportOptions, {});
  CHECK_FALSE(report.Forms({1, 2}));
  report.OnRegroup(Regrouped(2, 5));
  CHECK(report.Forms({1, 2}));
  report.OnFormed({1, 1}, milliseconds(9));
  CHECK(report.Forms({1, 2}));
  report.OnFormed({1, 2}, milliseconds(0));
  CHECK_FALSE(report.Forms({1, 2}));
  report.OnFormed({1, 2}, milliseconds(30));
  CHECK(Shown(report, 5).regroups(0).form_ms() == 1);  // 0 would mean: not yet
}

TEST_CASE("RunReport: after a restart it shows the figures of before") {
  v1::JobStatus before;
  before.set_step(9);
  before.set_updates(7);
  before.set_epoch(3);
  before.set_last_step_unix_ms(1'000);
  RunReport report(kReportOptions, before);
  report.Adopt(before, 9);
  CHECK(Shown(report, 9).updates() == 7);
  CHECK(Shown(report, 9).epoch() == 3);
  CHECK(Shown(report, 9).last_step_unix_ms() == 1'000);
  CHECK(report.newest_step() == 9);
}

}  // namespace
}  // namespace ringmaster::coordinator
