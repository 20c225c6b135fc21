// RenderWhy and RenderFailure: reasons, and what to do about them.
#include <fmt/format.h>

#include "cli/names.h"
#include "cli/render.h"

namespace ringmaster::cli {
namespace {

std::string Line(const char* key, const std::string& value) {
  return value.empty() ? "" : fmt::format("{:<11} {}\n", key, Printable(value));
}

}  // namespace

std::string RenderFailure(const v1::Failure& failure) {
  return Line("worker:", failure.worker()) + Line("host:", failure.host()) +
         Line("step:", fmt::format("{}", failure.step())) + Line("phase:", failure.phase()) +
         Line("what to do:", failure.advice());
}

std::string RenderWhy(const v1::WhyResponse& why, const Terminal& terminal) {
  std::string text = terminal.Paint(ColourOf(why.state()), StateName(why.state()));
  text += why.reason().empty() ? "\n" : ": " + Printable(why.reason()) + "\n";
  if (why.has_failure()) text += RenderFailure(why.failure());
  for (const std::string& advice : why.advice()) {
    if (advice != why.failure().advice())
      text += Line(why.has_failure() ? "what to do:" : "what helps:", advice);
  }
  for (const std::string& line : why.history()) text += "  " + Printable(line) + "\n";
  return text;
}

}  // namespace ringmaster::cli
