// What the page says, in Spanish unless the browser prefers English.
const words = {
  es: {
    youAre: "Eres",
    conversation: "Conversación",
    empty: "Aquí empieza tu conversación.",
    start: "Empezar",
    typing: "escribiendo…",
    bot: "bot",
    connecting: "conectando…",
    nobody: "No hay nadie en este simulador.",
    down: "Ir al último mensaje",
    attach: "Adjuntar un archivo",
    message: "Mensaje",
    send: "Enviar",
    edited: "editado",
    you: "Tú",
    today: "Hoy",
    ok: "Entendido",
    notSent: "No se pudo enviar. Prueba otra vez.",
    opens: "se abre en otra pestaña",
    spoiler: "Mostrar texto oculto",
  },
  en: {
    youAre: "You are",
    conversation: "Conversation",
    empty: "Your conversation starts here.",
    start: "Start",
    typing: "typing…",
    bot: "bot",
    connecting: "connecting…",
    nobody: "There is nobody in this simulator.",
    down: "Go to the latest message",
    attach: "Attach a file",
    message: "Message",
    send: "Send",
    edited: "edited",
    you: "You",
    today: "Today",
    ok: "Got it",
    notSent: "It could not be sent. Try again.",
    opens: "opens in another tab",
    spoiler: "Show hidden text",
  },
};

export const language = (navigator.languages ?? [navigator.language])
  .map((tag) => tag.slice(0, 2).toLowerCase())
  .find((tag) => tag in words) ?? "es";

export const word = (name) => words[language][name];

// Fills the texts and labels that the document leaves to this file.
export function translate(root) {
  root.documentElement.lang = language;
  for (const el of root.querySelectorAll("[data-word]")) el.textContent = word(el.dataset.word);
  for (const el of root.querySelectorAll("[data-label-word]")) {
    el.setAttribute("aria-label", word(el.dataset.labelWord));
    if (el.tagName === "BUTTON") el.title = word(el.dataset.labelWord);
  }
  for (const el of root.querySelectorAll("[data-placeholder-word]")) el.placeholder = word(el.dataset.placeholderWord);
}
