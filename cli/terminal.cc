#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

namespace ringmaster::cli {
namespace {

bool IsSet(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

}  // namespace

Terminal Terminal::Of(std::FILE* stream) {
  const char* const kind = std::getenv("TERM");
  const bool dumb = kind == nullptr || std::string(kind) == "dumb";
  const bool repaints = isatty(fileno(stream)) == 1 && !dumb;
  return Terminal(repaints, repaints && !IsSet("NO_COLOR"));
}

size_t Terminal::ColumnsOf(std::FILE* stream) {
  winsize size{};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

std::string Terminal::Paint(Colour colour, const std::string& text) const {
  if (!colours_ || text.empty()) return text;
  switch (colour) {
    case Colour::kPlain:
      return text;
    case Colour::kGreen:
      return "\033[32m" + text + "\033[0m";
    case Colour::kYellow:
      return "\033[33m" + text + "\033[0m";
    case Colour::kRed:
      return "\033[31m" + text + "\033[0m";
    case Colour::kBold:
      return "\033[1m" + text + "\033[0m";
  }
  return text;
}

}  // namespace ringmaster::cli
