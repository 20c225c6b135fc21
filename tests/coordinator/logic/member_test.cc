#include <catch2/catch.hpp>
#include <string>
#include <utility>

#include "coordinator/logic/run/member.h"
#include "tests/coordinator/logic/fixtures.h"

namespace ringmaster::coordinator {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kOtherwise{300'000};
// `count` pieces of work in `phase`, one every `gap` ms; the time of the last.
int64_t Work(ProgressWatch& watch, const char* phase, int count, int64_t gap) {
  for (int i = 0; i <= count; ++i) watch.Observe(phase, i, AtMs(i * gap));
  return count * gap;
}

TEST_CASE("ProgressWatch: the limit is five seconds, or five times the longest gap") {
  ProgressWatch quick;
  int64_t last = Work(quick, "compute", 8, 100);
  CHECK_FALSE(quick.Frozen(kOtherwise, AtMs(last + 4'999)));
  CHECK(quick.Frozen(kOtherwise, AtMs(last + 5'000)) == milliseconds(5'000));
  ProgressWatch slow;
  last = Work(slow, "compute", 8, 2'000);
  CHECK_FALSE(slow.Frozen(kOtherwise, AtMs(last + 9'999)));
  CHECK(slow.Frozen(kOtherwise, AtMs(last + 10'000)));
}

TEST_CASE("ProgressWatch: before eight gaps the other limit holds, for each phase of its own") {
  ProgressWatch watch;
  int64_t last = Work(watch, "compute", 7, 100);
  CHECK_FALSE(watch.Frozen(kOtherwise, AtMs(last + 299'999)));
  CHECK(watch.Frozen(kOtherwise, AtMs(last + 300'000)));
  watch.Observe("compute", 8, AtMs(800));
  watch.Observe("update", 8, AtMs(900));
  CHECK_FALSE(watch.Frozen(kOtherwise, AtMs(10'000)));
}

TEST_CASE("ProgressWatch: who waits for others, or for a device that is down, is not accused") {
  for (const char* phase : {"reduce", "farewell", "idle", "evaluate", "restart", "ring", ""}) {
    ProgressWatch watch;
    const int64_t last = Work(watch, phase, 20, 100);
    INFO(phase);
    CHECK_FALSE(watch.Frozen(kOtherwise, AtMs(last + 1'000'000)));
  }
}

TEST_CASE(
    "ProgressWatch: the time between two generations, or that the coordinator lost, is no gap") {
  ProgressWatch watch;
  const int64_t last = Work(watch, "compute", 8, 100);
  watch.Excuse(milliseconds(3'000));
  CHECK_FALSE(watch.Frozen(kOtherwise, AtMs(last + 7'000)));
  watch.Restart();
  CHECK_FALSE(watch.Frozen(kOtherwise, AtMs(last + 100'000)));
  watch.Observe("compute", 9, AtMs(last + 100'000));
  CHECK_FALSE(watch.Frozen(kOtherwise, AtMs(last + 104'999)));
  CHECK(watch.Frozen(kOtherwise, AtMs(last + 105'000)));
}

using std::chrono::milliseconds;

TEST_CASE("Readmission: a bar lasts twice as long each time, at most 5 minutes") {
  Readmission readmission;
  CHECK(readmission.Bar("a", "x", AtMs(0)) == milliseconds(1'000));
  CHECK(readmission.Barred("a", "x", AtMs(999)));
  CHECK_FALSE(readmission.Barred("a", "x", AtMs(1'000)));
  CHECK_FALSE(readmission.Barred("b", "x", AtMs(0)));
  CHECK(readmission.Bar("a", "x", AtMs(2'000)) == milliseconds(2'000));
  for (int i = 0; i < 10; ++i) readmission.Bar("a", "x", AtMs(3'000));
  CHECK(readmission.Bar("a", "x", AtMs(4'000)) == milliseconds(300'000));
}

TEST_CASE(
    "Readmission: who was too slow is out for minutes, up to an hour, or until it is needed") {
  Readmission readmission;
  CHECK(readmission.BarSlow("a", "x", AtMs(0)) == milliseconds(300'000));
  CHECK(readmission.Barred("a", "x", AtMs(299'999)));
  CHECK(readmission.BarSlow("a", "x", AtMs(300'000)) == milliseconds(600'000));
  for (int i = 0; i < 5; ++i) readmission.BarSlow("a", "x", AtMs(400'000));
  CHECK(readmission.BarSlow("a", "x", AtMs(400'000)) == milliseconds(3'600'000));
  readmission.Bar("b", "y", AtMs(400'000));
  readmission.LiftSlow(AtMs(400'100));
  CHECK_FALSE(readmission.Barred("a", "x", AtMs(400'100)));
  CHECK(readmission.Barred("b", "y", AtMs(400'100)));  // that was for something else
}

TEST_CASE("Readmission: a new process of that name has a clean record") {
  Readmission readmission;
  readmission.Bar("a", "x", AtMs(0));
  readmission.Bar("a", "x", AtMs(0));
  CHECK_FALSE(readmission.Barred("a", "y", AtMs(0)));
  CHECK(readmission.Bar("a", "y", AtMs(0)) == milliseconds(1'000));
}

TEST_CASE(
    "Readmission: the end of a bar is said once, and the coordinator's own delay counts not") {
  Readmission readmission;
  CHECK_FALSE(readmission.TakeEnded(AtMs(0)));
  readmission.Bar("a", "x", AtMs(0));
  readmission.Excuse(milliseconds(500));
  CHECK_FALSE(readmission.TakeEnded(AtMs(1'400)));
  CHECK(readmission.TakeEnded(AtMs(1'500)));
  CHECK_FALSE(readmission.TakeEnded(AtMs(1'600)));
}

}  // namespace

namespace {

Member MakeMember(const std::string& name, const std::string& incarnation) {
  Member member;
  member.attach.set_name(name);
  member.attach.set_incarnation(incarnation);
  return member;
}

Membership MakeTrio() {
  Membership members;
  for (const char* const name : {"a", "b", "c"}) members.Add(MakeMember(name, "1"));
  members.SetRing({{"c", "1", "", {}}, {"a", "1", "", {}}, {"b", "1", "", {}}});
  return members;
}

TEST_CASE("Membership: a member is found by its name, whoever went before it") {
  Membership members = MakeTrio();
  members.Remove("a");
  members.Remove("nobody");
  REQUIRE(members.size() == 2);
  CHECK(members.Find("a") == nullptr);
  REQUIRE(members.Find("c") != nullptr);
  CHECK(members.Find("c")->name() == "c");
  CHECK(members.Find("b")->name() == "b");
  members.Add(MakeMember("d", "1"));
  CHECK(members.Find("d")->name() == "d");
  CHECK(members.front().name() == "b");
}

TEST_CASE("Membership: a place is that of a process, not of a name") {
  Membership members = MakeTrio();
  CHECK(members.RankOf("c") == size_t{0});
  CHECK(members.RankOf("b") == size_t{2});
  CHECK(members.RankOf("nobody") == std::nullopt);
  members.Remove("b");
  CHECK(members.RankOf("b") == std::nullopt);
  CHECK(members.At(members.ring()[2]) == nullptr);
  members.Add(MakeMember("b", "2"));
  CHECK(members.RankOf("b") == std::nullopt);
  members.Recognize("b", "2");
  CHECK(members.RankOf("b") == size_t{2});
  CHECK(members.At(members.ring()[2])->incarnation() == "2");
}

TEST_CASE("Membership: a new ring takes the place of the one before, which comes back") {
  Membership members = MakeTrio();
  const std::vector<Place> before = members.SetRing({{"b", "1", "", {}}});
  REQUIRE(before.size() == 3);
  CHECK(before[0].name == "c");
  CHECK(members.RankOf("b") == size_t{0});
  CHECK(members.RankOf("a") == std::nullopt);
  CHECK(members.At(before[1])->name() == "a");
}

}  // namespace

}  // namespace ringmaster::coordinator
