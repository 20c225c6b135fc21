// What tuning times, and what it leaves: candidates that exist as numbers alone.
#include "worker/backend/cuda/tune.h"

#include <catch2/catch.hpp>
#include <vector>

namespace ringmaster::cuda {
namespace {

struct Contestant {
  double glance = 0, time = 0;
  bool repeats = true;
  bool made = true;
};

struct Contest {
  std::vector<Contestant> contestants;
  size_t current = 0;
  std::vector<size_t> glanced, timed, repeated;

  SearchResult Run(SearchOptions options) {
    options.candidates = contestants.size();
    if (!options.time_is_up) options.time_is_up = [] { return false; };
    return Search(options, {.glance = [this](size_t i) -> StatusOr<double> {
                              current = i;
                              glanced.push_back(i);
                              if (!contestants[i].made) return Internal("no such engine");
                              return contestants[i].glance;
                            },
                            .time = [this](double) -> StatusOr<double> {
                              timed.push_back(current);
                              return contestants[current].time;
                            },
                            .repeats = [this]() -> StatusOr<bool> {
                              repeated.push_back(current);
                              return contestants[current].repeats;
                            }});
  }
};

using Candidates = std::vector<size_t>;

}  // namespace

TEST_CASE(
    "Search: only what is near the best at first sight is timed, only what wins is repeated") {
  Contest contest = {{{10, 10}, {50, 1}, {11, 11}, {8, 8}, {9.7, 7}, {9, 7}}};
  const SearchResult result = contest.Run({.preferred = 6, .untuned = 10});
  REQUIRE(result.winner.has_value());
  CHECK(result.winner->candidate == 5);
  CHECK(result.winner->microseconds == 7);
  CHECK(result.tried == 6);
  CHECK(contest.timed == Candidates{0, 2, 3, 5});
  CHECK(contest.repeated == Candidates{0, 3, 5});
}

TEST_CASE(
    "Search: the first of equal ones wins, and nobody who cannot be made or does not repeat") {
  Contest contest = {{{5, 5, true, false}, {6, 6, false}, {7, 7}, {7, 7}}};
  const SearchResult result = contest.Run({.preferred = 4, .untuned = 100});
  REQUIRE(result.winner.has_value());
  CHECK(result.winner->candidate == 2);
}

TEST_CASE("Search: what is slower than the choice without a table is left at first sight") {
  Contest contest = {{{13, 1}, {12, 12}}};
  const SearchResult result = contest.Run({.preferred = 2, .untuned = 10});
  REQUIRE(result.winner.has_value());
  CHECK(result.winner->candidate == 1);
  CHECK(contest.timed == Candidates{1});
  CHECK_FALSE(Contest{{{13, 1}}}.Run({.preferred = 1, .untuned = 10}).winner.has_value());
}

TEST_CASE("Search: the others count only where none of the preferred will do") {
  Contest good = {{{10, 10}, {1, 1}}};
  CHECK(good.Run({.preferred = 1, .untuned = 10}).winner->candidate == 0);
  CHECK(good.glanced == Candidates{0});
  Contest bad = {{{10, 10, false}, {4, 4}}};
  CHECK(bad.Run({.preferred = 1, .untuned = 10}).winner->candidate == 1);
}

TEST_CASE("Search: it ends when the time is up, with what it has") {
  Contest contest = {{{10, 10}, {9, 9}, {1, 1}}};
  const SearchResult result = contest.Run({.preferred = 3, .untuned = 10, .time_is_up = [&contest] {
                                             return contest.glanced.size() == 2;
                                           }});
  CHECK(result.tried == 2);
  CHECK(result.winner->candidate == 1);
}

TEST_CASE("SecondsFor: twice the part of the cost, a second at least, never more than is left") {
  CHECK(SecondsFor(10, 100, 500) == 100);
  CHECK(SecondsFor(60, 100, 500) == 500);
  CHECK(SecondsFor(0.001, 100, 500) == 1);
  CHECK(SecondsFor(0.001, 100, 0.5) == 0.5);
  CHECK(SecondsFor(5, 5, 30) == 30);
}

}  // namespace ringmaster::cuda
