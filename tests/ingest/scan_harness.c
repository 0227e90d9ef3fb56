/* Mutates chunks of traces and scans each in a buffer of exactly its size; built by the tests with
 * -fsanitize=address,undefined, so that any read past the end or overflow ends the program.
 *
 *     scan_harness INPUTS SEED FILE...        prints how many were accepted and refused */
#include <stdio.h>

#include "scan.c"

static uint64_t state;
static uint32_t draw(uint32_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state >> 33) % below;
}

static const char *const TOKENS[] = {
    "\"", "{", "}", "[", "]", ",", ":", "\\", "\n", "\xff", "\xc3\xa9", "\xf0\x9f\x98\x80", "NaN", "null", "-",
    "\\u00e9", "1e9", "0x1f", "9223372036854775807", "4600000000000000", ".125", "true", "[[[[[[[[", "{\"a\":",
    "\"ph\": \"X\"", "\"ph\": \"M\"", "\"args\": {", "\"stream\": ", "\"dur\": -1", "\"Input Dims\": [[", "aten::",
};

static size_t mutate(uint8_t *text, size_t size, size_t room) {
    for (uint32_t left = 1 + draw(3) * draw(2); left--;) {
        size_t at = draw((uint32_t)size + 1), gone = 0, from = 0, more = 0;
        const char *token = TOKENS[draw(sizeof TOKENS / sizeof *TOKENS)];
        uint8_t piece[64];
        switch (draw(6)) {
        case 0: size = at; continue;
        case 1: if (at < size) text[at] = (uint8_t)draw(256); continue;
        case 2: more = strlen(token), memcpy(piece, token, more); break;
        case 3: more = strlen(token), memcpy(piece, token, more), gone = draw(12); break;
        case 4: gone = draw(20); break;
        default:
            from = draw((uint32_t)size + 1), more = draw(60);
            if (more > size - from) more = size - from;
            memcpy(piece, text + from, more);
        }
        if (gone > size - at) gone = size - at;
        if (size - gone + more > room) continue;
        memmove(text + at + more, text + at + gone, size - at - gone);
        memcpy(text + at, piece, more);
        size = size - gone + more;
    }
    return size;
}

static uint64_t touch(const batch *b, const scanner *s) {
    uint64_t sum = 0;
    int64_t size;
    for (int which = 0; which <= 11; which++)
        for (int at = 0; at < (which < 2 ? COLUMNS : which < 9 ? 1 : s->comm); at++) {
            const uint8_t *data = advisor_buffer(b, which, at, &size);
            for (int64_t i = 0; i < size; i++) sum += data[i];
        }
    return sum;
}

static int scan_all(scanner *s, batch **b, const uint8_t *text, size_t size) {
    for (int tries = 0; tries < 2; tries++) {
        int status;
        advisor_begin(s, *b, text, (int64_t)size, 3, 1000, (int64_t)draw(1u << 30) << 20);
        while ((status = advisor_scan(s, *b)) == ASK) {
            const uint8_t *parts[2];
            int64_t sizes[2];
            int32_t flags = advisor_question(s, parts, sizes);
            for (int part = 0; part < 2; part++)
                for (int64_t i = 0; i < sizes[part]; i++) flags += parts[part][i];
            if (!advisor_answer(s, flags % 7, flags & 1, flags >> 1 & 1, !(flags % 11), flags >> 2 & 1)) {
                advisor_undo(s, *b);
                status = FULL;
                break;
            }
        }
        if (status != FULL) return status;
        static volatile uint64_t kept;
        kept += touch(*b, s);
        if (draw(2) == 0 || !advisor_batch_clear(*b)) {
            advisor_batch_free(*b);
            *b = advisor_batch_new(64);
        }
        advisor_next_batch(s);
    }
    return REFUSED;
}

int main(int count, char **values) {
    const char *args[] = {
        "device", "stream", "correlation", "External id", "bytes", "name", "rank",
        "Collective name", "In msg nelems", "Group size", "Process Group Ranks", "Input Dims", "Concrete Inputs",
    };
    long inputs = atol(values[1]), accepted = 0;
    state = (uint64_t)atol(values[2]) * 0x9E3779B97F4A7C15u + 1;
    scanner *s = advisor_scanner_new(args, 13, "tlittt", 2, "iIR", "stfCPNODbneSTpFcvV", (int)(state >> 9 & 1), 7, state);
    batch *b = advisor_batch_new(64);
    advisor_next_batch(s);
    for (long i = 0; i < inputs; i++) {
        FILE *file = fopen(values[3 + draw((uint32_t)count - 3)], "rb");
        uint8_t *text = malloc(1 << 16);
        size_t size = fread(text, 1, 1 << 15, file);
        fclose(file);
        size = mutate(text, size, 1 << 16);
        uint8_t *exact = malloc(size ? size : 1);
        memcpy(exact, text, size);
        free(text);
        accepted += scan_all(s, &b, exact, size) == DONE;
        free(exact);
    }
    printf("%ld inputs: %ld accepted, %ld refused\n", inputs, accepted, inputs - accepted);
    advisor_batch_free(b);
    advisor_scanner_free(s);
    return 0;
}
