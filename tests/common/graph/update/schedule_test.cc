// Factors of learning rates against their formulas, by the library's functions.
#include "common/graph/update/schedule.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <functional>
#include <numbers>

namespace ringmaster::graph {
namespace {

constexpr uint64_t kTotal = 50;
constexpr uint64_t kWarmup = 10;

v1::Schedule WithWarmup(double from) {
  v1::Schedule schedule;
  schedule.mutable_warmup()->mutable_over()->set_updates(kWarmup);
  schedule.mutable_warmup()->set_from(from);
  return schedule;
}

// Behind the warm-up: of u, and of p.
using Formula50 = std::function<double(double u, double p)>;

// With a warm-up from 0.25 and without one.
void CheckFormula(v1::Schedule schedule, const Formula50& formula) {
  for (const uint64_t warmup : {kWarmup, uint64_t{0}}) {
    schedule.clear_warmup();
    if (warmup > 0) *schedule.mutable_warmup() = WithWarmup(0.25).warmup();
    for (uint64_t update = 1; update <= kTotal; ++update) {
      INFO(schedule.ShortDebugString() << " update " << update);
      const auto u = static_cast<double>(update);
      const auto w = static_cast<double>(warmup);
      const double expected =
          update <= warmup ? 0.25 + 0.75 * u / w : formula(u, (u - w) / (double{kTotal} - w));
      CHECK(FactorOf(schedule, update, kTotal) == Approx(expected).epsilon(1e-14).margin(1e-16));
    }
  }
}

TEST_CASE("Schedule: without a shape the rate is constant") {
  CheckFormula({}, [](double, double) { return 1; });
}

TEST_CASE("Schedule: a cosine from 1 to its end") {
  v1::Schedule schedule;
  for (const double last : {0.0, 0.1}) {
    schedule.mutable_cosine()->set_final(last);
    CheckFormula(schedule, [last](double, double p) {
      return last + (1 - last) * (1 + std::cos(std::numbers::pi * p)) / 2;
    });
    CHECK(FactorOf(schedule, kTotal, kTotal) == last);
  }
}

TEST_CASE("Schedule: a polynomial, of a whole power and of another") {
  v1::Schedule schedule;
  schedule.mutable_polynomial()->set_final(0.05);
  for (const double power : {1.0, 2.0, 2.5}) {
    schedule.mutable_polynomial()->set_power(power);
    CheckFormula(schedule,
                 [power](double, double p) { return 0.05 + 0.95 * std::pow(1 - p, power); });
  }
  schedule.mutable_polynomial()->set_power(1);
  schedule.mutable_polynomial()->set_final(0);
  CHECK(FactorOf(schedule, 25, kTotal) == 0.5);
}

TEST_CASE("Schedule: steps at boundaries, with one factor and with one each") {
  v1::Schedule schedule;
  for (const uint64_t at : {20, 30, 45}) schedule.mutable_steps()->add_at()->set_updates(at);
  schedule.mutable_steps()->mutable_factor()->add_values(0.1);
  CheckFormula(schedule, [](double u, double) {
    return (u > 20 ? 0.1 : 1) * (u > 30 ? 0.1 : 1) * (u > 45 ? 0.1 : 1);
  });
  schedule.mutable_steps()->mutable_factor()->add_values(0.5);
  schedule.mutable_steps()->mutable_factor()->add_values(0.25);
  CheckFormula(schedule, [](double u, double) {
    return (u > 20 ? 0.1 : 1) * (u > 30 ? 0.5 : 1) * (u > 45 ? 0.25 : 1);
  });
  CHECK(FactorOf(schedule, 20, kTotal) == 1);
  CHECK(FactorOf(schedule, 21, kTotal) == 0.1);
}

TEST_CASE("Schedule: steps after every so many updates") {
  v1::Schedule schedule;
  schedule.mutable_steps()->mutable_every()->set_updates(15);
  schedule.mutable_steps()->mutable_factor()->add_values(0.5);
  CheckFormula(schedule, [](double u, double) { return std::pow(0.5, std::floor((u - 1) / 15)); });
}

TEST_CASE("Schedule: an exponential counts from the end of the warm-up") {
  v1::Schedule schedule;
  schedule.mutable_exponential()->mutable_every()->set_updates(7);
  schedule.mutable_exponential()->set_factor(0.9);
  for (const uint64_t warmup : {kWarmup, uint64_t{0}}) {
    schedule.clear_warmup();
    if (warmup > 0) *schedule.mutable_warmup() = WithWarmup(0).warmup();
    for (uint64_t u = warmup + 1; u <= kTotal; ++u) {
      const double spans = static_cast<double>(u - warmup) / 7;
      CHECK(FactorOf(schedule, u, kTotal) == Approx(std::pow(0.9, spans)).epsilon(1e-14));
    }
    CHECK(FactorOf(schedule, warmup + 14, kTotal) == 0.9 * 0.9);
  }
}

}  // namespace
}  // namespace ringmaster::graph
