// What Pillow and torchvision are held against. Each line of stdin is a case:
//
//     render FILE CHANNELS SEED SAMPLE AUGMENT      what the geometric entries make of an image
//     place HEIGHT WIDTH SEED SAMPLES AUGMENT       where they cut, of so many samples
//     time FILE CHANNELS SEED SAMPLES AUGMENT       milliseconds of CPU for each of so many samples
//
// AUGMENT is an `augment` list of the job file, as YAML on one line. Of `render` the height, the
// width and the bytes follow on stdout, or an error; of `place` top, left, height, width of the
// source for each sample.
#include <cstdio>
#include <ctime>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "common/files.h"
#include "common/graph/augment/geometry.h"
#include "common/image/placement.h"
#include "common/job/image_rules.h"
#include "common/job/job_file.h"

namespace ringmaster {
namespace {

StatusOr<graph::Geometry> GeometryOf(const std::string& text, uint64_t seed) {
  v1::JobSpec spec;
  RING_RETURN_IF_ERROR(job::ReadYaml("augment", "{augment: " + text + "}", &spec));
  job::ResolveAugment(&spec);
  RING_RETURN_IF_ERROR(job::CheckAugment(spec, spec));
  const std::vector<v1::Augmentation> list(spec.augment().begin(), spec.augment().end());
  return graph::Geometry(list, seed);
}

std::string Rest(std::istringstream* line) {
  std::string rest;
  std::getline(*line, rest);
  return rest;
}

Status Render(std::istringstream* line) {
  std::string name;
  uint32_t channels = 0;
  uint64_t seed = 0, sample = 0;
  *line >> name >> channels >> seed >> sample;
  RING_ASSIGN_OR_RETURN(const graph::Geometry geometry, GeometryOf(Rest(line), seed));
  RING_ASSIGN_OR_RETURN(const std::string text, ReadNamedFile("image", name));
  const std::span<const uint8_t> file(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  RING_ASSIGN_OR_RETURN(const image::Header header, image::ReadHeader(file));
  const image::Placement placement = geometry.Place(0, sample, header.size);
  const auto [height, width] = placement.kept.size;
  std::vector<uint8_t> pixels(size_t{height} * width * channels);
  RING_RETURN_IF_ERROR(image::Render(file, header, placement, channels, pixels));
  std::printf("%u %u\n", height, width);
  std::fwrite(pixels.data(), 1, pixels.size(), stdout);
  return absl::OkStatus();
}

// Of this thread: a wait for the CPU is none of it.
double CpuMilliseconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

// The images of samples 0 to SAMPLES - 1, of one file that is in memory.
Status Time(std::istringstream* line) {
  std::string name;
  uint32_t channels = 0;
  uint64_t seed = 0, samples = 0;
  *line >> name >> channels >> seed >> samples;
  RING_ASSIGN_OR_RETURN(const graph::Geometry geometry, GeometryOf(Rest(line), seed));
  RING_ASSIGN_OR_RETURN(const std::string text, ReadNamedFile("image", name));
  const std::span<const uint8_t> file(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  std::vector<uint8_t> pixels;
  const double begin = CpuMilliseconds();
  for (uint64_t sample = 0; sample < samples; ++sample) {
    RING_ASSIGN_OR_RETURN(const image::Header header, image::ReadHeader(file));
    const image::Placement placement = geometry.Place(0, sample, header.size);
    pixels.resize(size_t{placement.kept.size.height} * placement.kept.size.width * channels);
    RING_RETURN_IF_ERROR(image::Render(file, header, placement, channels, pixels));
  }
  std::printf("%.6f\n", (CpuMilliseconds() - begin) / static_cast<double>(samples));
  return absl::OkStatus();
}

Status Place(std::istringstream* line) {
  image::Size size;
  uint64_t seed = 0, samples = 0;
  *line >> size.height >> size.width >> seed >> samples;
  RING_ASSIGN_OR_RETURN(const graph::Geometry geometry, GeometryOf(Rest(line), seed));
  for (uint64_t sample = 0; sample < samples; ++sample) {
    const image::Window& window = geometry.Place(0, sample, size).source;
    std::printf("%u %u %u %u\n", window.top, window.left, window.size.height, window.size.width);
  }
  return absl::OkStatus();
}

int Run() {
  std::string text;
  while (std::getline(std::cin, text)) {
    std::istringstream line(text);
    std::string what;
    line >> what;
    const Status done = what == "render" ? Render(&line)
                        : what == "time" ? Time(&line)
                                         : Place(&line);
    if (!done.ok()) std::printf("error: %s\n", Message(done).c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace ringmaster

int main() { return ringmaster::Run(); }
