#include "cli/ringctl.h"

int main(int argc, char** argv) { return ringmaster::cli::Run(argc, argv); }
