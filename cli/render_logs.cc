// RenderLogLine and RenderEvents: what happened, with its time.
#include <absl/strings/ascii.h>
#include <fmt/format.h>

#include "cli/names.h"
#include "cli/render.h"
#include "cli/table.h"

namespace ringmaster::cli {

std::string RenderEvents(const v1::ListEventsResponse& events, const Terminal& terminal) {
  Table table({"TIME", "SEVERITY", "TYPE", "SUBJECT", "MESSAGE"});
  for (const v1::Event& event : events.events()) {
    table.Add({DateAndTime(event.unix_ms()),
               {event.severity(), ColourOfSeverity(event.severity())},
               event.type(),
               event.subject(),
               Printable(event.message())});
  }
  return table.Print(terminal);
}

std::string RenderLogLine(const v1::LogLine& line, const Terminal& terminal) {
  std::string text;
  if (line.lost() > 0) {
    text = terminal.Paint(Colour::kYellow,
                          fmt::format("... {} lost ...", Count(line.lost(), "line"))) +
           "\n";
  }
  const std::string level = fmt::format("{:<7}", absl::AsciiStrToUpper(line.level()));
  return text + fmt::format("{} {} {} {}\n", TimeOfDay(line.unix_ms()), line.worker(),
                            terminal.Paint(ColourOfSeverity(line.level()), level),
                            Printable(line.text()));
}

}  // namespace ringmaster::cli
