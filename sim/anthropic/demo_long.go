package anthropic

import (
	"fmt"
	"strings"
)

// tellLong answers with more than 9,000 characters of Markdown, which is more than two messages of a chat: headings,
// lists, a table, a code block and emoji, for those who test how such a text arrives.
func tellLong(t Turn) []Block {
	var b strings.Builder
	b.WriteString(t.say("# Un año de reuniones 📚\n\n", "# A year of meetings 📚\n\n"))
	b.WriteString(t.say(
		"Esta es la historia de un equipo que decidió **ordenar su agenda**, contada mes a mes. Está inventada de principio a fin.\n",
		"This is the story of a team that decided to **tidy its calendar**, told month by month. It is invented from start to end.\n",
	))
	for i, month := range longMonths(t) {
		longChapter(&b, t, i, month)
	}
	b.WriteString(t.say("\n## El resumen en una tabla\n\n| Mes | Reuniones | Horas |\n|---|---:|---:|\n", "\n## The summary in a table\n\n| Month | Meetings | Hours |\n|---|---:|---:|\n"))
	for i, month := range longMonths(t) {
		fmt.Fprintf(&b, "| %s | %d | %d |\n", month, 42-2*i, 63-4*i)
	}
	b.WriteString(t.say("\n## La cuenta, en código\n\n", "\n## The sum, in code\n\n"))
	b.WriteString("```go\nfunc hours(meetings, minutes int) float64 {\n\t// <b> & \"quotes\" must arrive as they are\n\treturn float64(meetings*minutes) / 60\n}\n```\n\n")
	b.WriteString(t.say("> Moraleja: la mejor reunión es la que no hizo falta. 🎉\n", "> The moral: the best meeting is the one nobody needed. 🎉\n"))
	return []Block{Text(b.String())}
}

func longMonths(t Turn) []string {
	return strings.Fields(t.say(
		"Enero Febrero Marzo Abril Mayo Junio Julio Agosto Septiembre Octubre Noviembre Diciembre",
		"January February March April May June July August September October November December",
	))
}

func longChapter(b *strings.Builder, t Turn, i int, month string) {
	faces := strings.Fields("🙂 🗓️ ☕ 📈 🌱 🌤️ 🏖️ 🌞 🍂 🎃 🌧️ 🎄")
	before, after := 42-2*i, 40-2*i
	fmt.Fprintf(b, t.say("\n## %d. %s %s\n\n", "\n## %d. %s %s\n\n"), i+1, month, faces[i%len(faces)])
	fmt.Fprintf(b, t.say(
		"En %s el equipo contó **%d reuniones**. Algunas eran necesarias, otras eran costumbre, y dos o tres nadie recordaba haberlas "+
			"pedido. Ana propuso una regla sencilla: si una reunión no tiene una pregunta escrita, *no se hace*. Al principio costó, "+
			"porque escribir la pregunta obliga a saber cuál es; después fue un alivio, y a fin de mes quedaban %d.\n\n",
		"In %s the team counted **%d meetings**. Some were needed, some were habit, and two or three nobody remembered asking for. "+
			"Ana proposed a simple rule: a meeting without a written question *does not happen*. At first it was hard, because to "+
			"write the question one has to know it; later it was a relief, and at the end of the month %d were left.\n\n",
	), strings.ToLower(month), before, after)
	fmt.Fprintf(b, t.say(
		"Lo que cambió ese mes:\n\n- las reuniones de los lunes pasaron a las %d:30;\n- cada una terminó con `una decisión` escrita;\n"+
			"- quien no tenía nada que decidir recibió un resumen de %d líneas.\n\n"+
			"Pasos que siguieron:\n\n1. mirar la agenda de la semana siguiente;\n2. borrar lo que no tenía pregunta ni nadie que la hiciera suya;\n3. juntar lo que se parecía;\n4. avisar a quien quedaba libre.\n",
		"What changed that month:\n\n- the Monday meetings went to %d:30;\n- each ended with `one decision` in writing;\n"+
			"- those with nothing to decide got a summary of %d lines.\n\n"+
			"The steps they took:\n\n1. look at the calendar of the week ahead;\n2. delete what had no question, nor anybody to make it theirs for the week;\n3. join what was alike;\n4. tell those who were free again.\n",
	), 9+i%3, 5+i)
}
