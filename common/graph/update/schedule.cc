#include "common/graph/update/schedule.h"

#include "common/numeric/elementary.h"

namespace ringmaster::graph {
namespace {

// From 1 down to `last`.
double Between(double last, double left) { return last + (1 - last) * left; }

}  // namespace

double Factor(const v1::Cosine& cosine, const Moment& moment) {
  return Between(cosine.final(), (1 + CosinePi(moment.part())) / 2);
}

double Factor(const v1::Polynomial& polynomial, const Moment& moment) {
  return Between(polynomial.final(), RealPower(1 - moment.part(), polynomial.power()));
}

double Factor(const v1::Steps& steps, const Moment& moment) {
  const auto& factors = steps.factor().values();
  const uint64_t done = moment.update - 1;  // updates before this one
  if (steps.has_every()) return Power(factors[0], done / steps.every().updates());
  double product = 1;
  for (int i = 0; i < steps.at_size() && done >= steps.at(i).updates(); ++i) {
    product *= factors[factors.size() == 1 ? 0 : i];
  }
  return product;
}

double Factor(const v1::Exponential& exponential, const Moment& moment) {
  const double spans = static_cast<double>(moment.update - moment.warmup) /
                       static_cast<double>(exponential.every().updates());
  return RealPower(exponential.factor(), spans);
}

double FactorOf(const v1::Schedule& schedule, uint64_t update, uint64_t total) {
  const Moment moment = {update, schedule.warmup().over().updates(), total};
  if (update <= moment.warmup) {
    const double risen = static_cast<double>(update) / static_cast<double>(moment.warmup);
    return schedule.warmup().from() + (1 - schedule.warmup().from()) * risen;
  }
  switch (schedule.shape_case()) {
    case v1::Schedule::kCosine:
      return Factor(schedule.cosine(), moment);
    case v1::Schedule::kPolynomial:
      return Factor(schedule.polynomial(), moment);
    case v1::Schedule::kSteps:
      return Factor(schedule.steps(), moment);
    case v1::Schedule::kExponential:
      return Factor(schedule.exponential(), moment);
    case v1::Schedule::SHAPE_NOT_SET:
      break;
  }
  return 1;
}

}  // namespace ringmaster::graph
